// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/file_verbs.hpp"

#include <catch2/catch_test_macros.hpp>

#include "support/staged_file.hpp"
#include "unit/daemon/control_scene.hpp"

namespace efs::daemon {
namespace {

using control::Json;
using scene::ControlScene;

TEST_CASE("no verb for files is carried out before programs use the buffer", "[daemon][control]") {
  ControlScene it;
  for (const char* verb :
       {"load", "unload", "fetch", "move", "wait-inputs", "ls", "explain", "set", "pin", "limit"}) {
    CAPTURE(verb);
    const Json answer =
        it.ask({{"verb", verb}, {"paths", {"a"}}, {"path", "a"}, {"class", ""}, {"to", "x"}});
    CHECK((answer["ok"] == false && answer["code"] == EAGAIN));
  }
  CHECK(it.ask({{"verb", "cancel"}, {"task", 5}})["code"] == ESRCH);
  CHECK(it.ask({{"verb", "wait-task"}, {"task", 5}})["code"] == ESRCH);
}

TEST_CASE("load and unload run as tasks whose outcome wait-task returns", "[daemon][control]") {
  ControlScene it;
  it.running();
  const Json load = it.ask({{"verb", "load"}, {"paths", {"/pfs/in/d/a", "b"}}});
  CHECK(load["ok"] == true);
  CHECK(it.outcome_of(load)["files"] == 2);
  CHECK(it.transfers.loaded == std::vector<std::string>{"d/a", "b"});
  const Json unload = it.ask({{"verb", "unload"}, {"paths", {"c"}}});
  CHECK(it.outcome_of(unload)["error"] == "the PFS is away");
  CHECK(it.transfers.unloaded == std::vector<std::string>{"c"});
  const Json tasks = it.ask({{"verb", "status"}})["tasks"];
  REQUIRE(tasks.size() == 2);
  CHECK((tasks[0]["what"] == "d/a and 1 more" && tasks[0]["task_state"] == "done"));
  CHECK((tasks[1]["kind"] == "unload" && tasks[1]["task_state"] == "failed"));
  CHECK(it.ask({{"verb", "cancel"}, {"task", 1}})["code"] == EALREADY);
}

TEST_CASE("load and unload are refused without a task", "[daemon][control]") {
  ControlScene it;
  it.running();
  for (const char* verb : {"load", "unload"}) {
    CAPTURE(verb);
    for (const Json& wrong : {Json{{"paths", Json::array()}}, Json{{"paths", {"/elsewhere"}}},
                              Json{{"paths", {"a"}}, {"backend", "none"}}}) {
      Json request = wrong;
      request["verb"] = verb;
      const Json answer = it.ask(request);
      CAPTURE(request.dump());
      CHECK((answer["ok"] == false && answer["exit"] == 2));
    }
  }
  it.config.results_dir.clear();
  CHECK(it.ask({{"verb", "unload"}, {"paths", {"a"}}})["exit"] == 2);
  it.tasks->close(false);
  CHECK(it.ask({{"verb", "load"}, {"paths", {"a"}}})["code"] == ESHUTDOWN);
  CHECK(it.ask({{"verb", "status"}})["tasks"].empty());
}

TEST_CASE("fetch asks for files that are remote, counts the others, and knows all names",
          "[daemon][control]") {
  ControlScene it;
  it.running();
  it.buffer.buffer->write("a", "1");
  const auto file = it.buffer.buffer->staging->begin_open_file();
  const fs::Origin version{.device = 1, .inode = 7, .size = 10};
  REQUIRE(efs::test::publish_file(*it.buffer.buffer->staging, *it.buffer.buffer->backend,
                                  {.ino = file->ino,
                                   .path = "b",
                                   .attributes = {.mode = 0600},
                                   .origin = version,
                                   .remote = fs::Remote{.version = version, .source = "b"}}));
  const Json fetch = it.ask({{"verb", "fetch"}, {"paths", {"*", "/mnt/b"}}});
  CHECK(it.outcome_of(fetch)["files"] == 1);
  CHECK((it.fetches.asked == 1 && it.fetches.already == 1));
  CHECK(it.fetches.prepared == 1);
  CHECK(it.ask({{"verb", "status"}})["tasks"][0]["kind"] == "fetch");
  const auto fetching_in_ls = [&] {
    it.lines.clear();
    (void)it.ask({{"verb", "ls"}, {"paths", {"b"}}});
    return it.lines.at(0)["items"][0].contains("fetching");
  };
  CHECK_FALSE(fetching_in_ls());
  it.fetches.fetching = true;
  CHECK(fetching_in_ls());
  CHECK(it.ask({{"verb", "explain"}, {"path", "b"}})["fetching"] == true);
  CHECK(it.ask({{"verb", "fetch"}, {"paths", {"none"}}})["code"] == ENOENT);
  CHECK(it.ask({{"verb", "fetch"}, {"paths", {"/elsewhere"}}})["exit"] == 2);
  CHECK(it.ask({{"verb", "status"}})["tasks"].size() == 1);
}

TEST_CASE("move goes to another backend of a job that has several", "[daemon][control]") {
  ControlScene it;
  it.running();
  it.buffer.buffer->write("a", "1");
  const Json one = it.ask({{"verb", "move"}, {"paths", {"a"}}, {"to", "disk"}});
  CHECK((one["ok"] == false && one["exit"] == 2));
  CHECK(one["error"].get<std::string>().contains("one backend only"));
  it.config.backends = {{.id = "ram"}, {.id = "disk"}};
  it.buffer.buffer = std::make_unique<scene::LiveBuffer>(efs::test::in_two_places);
  it.buffer.buffer->write("a", "1");
  it.buffer.buffer->write("b", "2");
  const auto move = [&](const Json& paths, const char* to) {
    return it.ask({{"verb", "move"}, {"paths", paths}, {"to", to}});
  };
  const Json unknown = move({"a"}, "tape");
  CHECK((unknown["exit"] == 2 &&
         unknown["error"] == "the job file has no backend tape; it has: ram, disk"));
  CHECK(move({"/elsewhere"}, "disk")["exit"] == 2);
  CHECK(move({"none"}, "disk")["code"] == ENOENT);
  CHECK(it.outcome_of(move({"/mnt/*"}, "disk"))["moved"] == 2);
  CHECK((it.transfers.moved == std::vector<std::string>{"a", "b"} && it.transfers.to == 1));
  const Json tasks = it.ask({{"verb", "status"}})["tasks"];
  REQUIRE(tasks.size() == 1);
  CHECK(tasks[0]["kind"] == "move");
}

TEST_CASE("wait-inputs ends with the background, in time, or with the instance",
          "[daemon][control]") {
  ControlScene it;
  it.running();
  it.fetches.background = {.left = 2, .failed = 1, .last_error = "a: no"};
  const Json late = it.ask({{"verb", "wait-inputs"}, {"timeout_ms", 0}});
  CHECK((late["ok"] == true && late["left"] == 2 && late["failed"] == 1));
  CHECK(late["last_error"] == "a: no");
  CHECK(it.ask({{"verb", "wait-inputs"}}, false)["code"] == EPIPE);
  REQUIRE_FALSE(it.lines.empty());
  CHECK(it.lines[0]["state"] == "fetching inputs: 2 are left");
  it.fetches.background = {.is_over = true};
  CHECK(it.ask({{"verb", "wait-inputs"}})["left"] == 0);
  it.fetches.background = {.is_ending = true};
  CHECK(it.ask({{"verb", "wait-inputs"}})["code"] == ESHUTDOWN);
}

TEST_CASE("ls lists what it was asked for, in progress lines", "[daemon][control]") {
  ControlScene it;
  it.running();
  it.buffer.buffer->write("a", "1");
  it.buffer.buffer->write("b", "22");
  CHECK(it.ask({{"verb", "ls"}, {"paths", {"b"}}})["count"] == 1);
  REQUIRE(it.lines.size() == 1);
  CHECK(it.lines[0]["items"][0]["path"] == "b");
  CHECK(it.lines[0]["items"][0]["size"] == 2);
  CHECK(it.ask({{"verb", "ls"}, {"paths", {"none"}}})["code"] == ENOENT);
  CHECK(it.ask({{"verb", "ls"}, {"paths", {"/elsewhere"}}})["exit"] == 2);
  CHECK(it.ask({{"verb", "ls"}}, false)["code"] == EPIPE);
}

TEST_CASE("set changes all names or none", "[daemon][control]") {
  ControlScene it;
  it.running();
  it.buffer.buffer->write("a", "1");
  const auto count = [&] {
    return it.ask({{"verb", "status"}, {"changed", true}})["changed_files"];
  };
  const auto set = [&](const char* to, const Json& paths) {
    return it.ask({{"verb", "set"}, {"class", to}, {"paths", paths}});
  };
  CHECK(count() == 1);
  CHECK(set("temporary", {"a", "none"})["ok"] == false);
  CHECK(count() == 1);
  CHECK(set("temporary", {"a"})["count"] == 1);
  CHECK(count() == 0);
  CHECK(set("best", {"a"})["exit"] == 2);
  it.config.results_dir.clear();
  CHECK(set("persistent", {"a"})["code"] == EINVAL);
}

TEST_CASE("pin and unpin are for the files that exist", "[daemon][control]") {
  ControlScene it;
  it.running();
  it.buffer.buffer->write("a", "1");
  REQUIRE(it.buffer.buffer->staging->add_directory("d", {.mode = 0755}));
  const auto pin = [&](const Json& paths, bool pinned) {
    return it.ask({{"verb", "pin"}, {"paths", paths}, {"pinned", pinned}});
  };
  const auto is_pinned = [&] {
    it.lines.clear();
    (void)it.ask({{"verb", "ls"}, {"paths", {"a"}}});
    return it.lines.at(0)["items"][0].contains("pinned");
  };
  CHECK(pin({"/mnt"}, true)["count"] == 1);
  CHECK(is_pinned());
  CHECK(it.ask({{"verb", "explain"}, {"path", "a"}})["pinned"] == true);
  CHECK(pin({"a"}, true)["count"] == 1);
  CHECK(pin({"a", "*"}, false)["count"] == 1);
  CHECK_FALSE(is_pinned());
  CHECK(pin({"d"}, true)["count"] == 0);
  CHECK(pin({"none"}, true)["code"] == ENOENT);
  CHECK(pin({"/elsewhere"}, true)["exit"] == 2);
}

TEST_CASE("explain names the backend of a file", "[daemon][control]") {
  ControlScene it;
  it.running();
  it.buffer.buffer->write("a", "1");
  const Json answer = it.ask({{"verb", "explain"}, {"path", "a"}});
  CHECK((answer["ok"] == true && answer["in_buffer"] == true));
  CHECK(answer["backend"] == it.buffer.buffer->backend->description());
  CHECK(it.ask({{"verb", "explain"}, {"path", "/elsewhere"}})["exit"] == 2);
}

TEST_CASE("limit is a request to the mount", "[daemon][control]") {
  ControlScene it;
  it.running();
  CHECK(it.ask({{"verb", "limit"}, {"read", 7}})["limits"]["read"] == 7);
}

}  // namespace
}  // namespace efs::daemon
