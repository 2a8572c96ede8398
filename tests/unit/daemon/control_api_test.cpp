// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/control_api.hpp"

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "unit/daemon/control_scene.hpp"

namespace efs::daemon {
namespace {

using control::Json;
using scene::ControlScene;

constexpr int is_gone = EPIPE;

TEST_CASE("status has the facts of the job and the fields of its parts", "[daemon][control]") {
  ControlScene it(2);
  const Json status = it.ask({{"verb", "status"}});
  CHECK(status["ok"] == true);
  CHECK(status["state"] == "recovering");
  CHECK((status["name"] == "job" && status["mount"] == "/mnt" && status["takeovers"] == 2));
  CHECK((status["supervisor_pid"] == 77 && status["log"] == "/run/job/efsd.log"));
  CHECK(status["protocol"] == control::protocol_version);
  CHECK(status["capacity"] == 4096);
  CHECK(status["tasks"].empty());
  CHECK_FALSE(status.contains("changed_files"));
  CHECK_FALSE(status.contains("given_up"));
}

TEST_CASE("status counts the results only if asked to", "[daemon][control]") {
  ControlScene it;
  it.running();
  it.buffer.buffer->write("result", "12345");
  CHECK_FALSE(it.ask({{"verb", "status"}}).contains("changed_files"));
  const Json status = it.ask({{"verb", "status"}, {"changed", true}});
  CHECK((status["changed_files"] == 1 && status["changed_bytes"] == 5));
  it.buffer.buffer.reset();
  CHECK_FALSE(it.ask({{"verb", "status"}, {"changed", true}}).contains("changed_files"));
}

TEST_CASE("a request needs a verb, and its fields need their types", "[daemon][control]") {
  ControlScene it;
  CHECK_THROWS_AS(it.ask({{"verb", "status"}, {"changed", "yes"}}), std::invalid_argument);
  it.running();
  const Json answer = it.ask({{"verb", "dance"}});
  CHECK((answer["ok"] == false && answer["code"] == EINVAL && answer["exit"] == 2));
}

TEST_CASE("wait ends when programs can use the mount", "[daemon][control]") {
  ControlScene it;
  it.running();
  const Json answer = it.ask({{"verb", "wait"}});
  CHECK((answer["ok"] == true && answer["state"] == "running" && answer["capacity"] == 4096));
  CHECK(it.lines.empty());
}

TEST_CASE("wait gets the reason of a failed start, which the start waits for",
          "[daemon][control]") {
  ControlScene it;
  it.start.fail({ENOENT, "no such input"});
  (void)it.stops.enter(Event::start_failed);
  std::jthread start([&] { it.start.await_told(std::chrono::steady_clock::time_point::max()); });
  CHECK(it.ask({{"verb", "wait"}})["error"] == "no such input");
  start.join();
  CHECK(it.status.status_file()["error"] == "no such input");
}

TEST_CASE("a start is cancelled if its starter disappears, and only then", "[daemon][control]") {
  for (const bool starter : {false, true}) {
    ControlScene it;
    it.buffer.kept = true;
    CHECK(it.ask({{"verb", "wait"}, {"starter", starter}}, false)["code"] == is_gone);
    CHECK(it.lines.front()["state"] == "planning");
    CHECK(it.start.is_starter_gone() == starter);
    CHECK(it.progress.cancel == starter);
    CHECK(it.ask({{"verb", "status"}}).contains("given_up") == starter);
    if (starter) {
      CHECK(it.stops.latest()->keep);
    }
  }
  ControlScene successor(1);
  CHECK(successor.ask({{"verb", "wait"}, {"starter", true}}, false)["code"] == is_gone);
  CHECK_FALSE(successor.start.is_starter_gone());
}

TEST_CASE("a stop of another instance of this name is refused", "[daemon][control]") {
  ControlScene it;
  it.running();
  const Json answer = it.ask({{"verb", "stop"}, {"supervisor", 78}});
  CHECK((answer["ok"] == false && answer["code"] == ESRCH));
  CHECK_FALSE(it.stops.latest());
}

TEST_CASE("a stop gets the outcome, and the receipt if it asked for it", "[daemon][control]") {
  for (const bool with_receipt : {false, true}) {
    ControlScene it;
    it.running();
    it.stops.set_receipt(std::make_shared<const stage::Receipt>());
    std::jthread end([&] { it.end_well(); });
    const Json answer =
        it.ask({{"verb", "stop"}, {"supervisor", 77}, {"receipt", with_receipt}}, false);
    CHECK((answer["ok"] == true && answer["staged_out"] == true));
    CHECK(answer.contains("receipt") == with_receipt);
  }
}

TEST_CASE("a stop that drops the results cancels the tasks", "[daemon][control]") {
  ControlScene it;
  it.running();
  (void)it.ask({{"verb", "load"}, {"paths", {"a"}}});
  CHECK(it.api.request_stop({.stage_out = false, .times = {}}) == 1);
  CHECK(it.stops.latest()->stage_out == false);
  // a request that concerns only a start leaves a mount and its tasks alone
  CHECK(it.api.request_stop({.stage_out = false, .start_only = true, .times = {}}) == 0);
}

TEST_CASE("a stop that was carried out differently fails", "[daemon][control]") {
  ControlScene it;
  it.running();
  std::jthread end([&] { it.end_well(); });
  CHECK(it.ask({{"verb", "stop"}})["ok"] == true);
  end.join();
  const Json late = it.ask({{"verb", "wait-end"}, {"keep", true}});
  CHECK((late["ok"] == false && late["code"] == ECANCELED && late["ended"] == true));
  it.buffer.kept = true;
  CHECK(it.ask({{"verb", "wait-end"}, {"keep", true}})["ok"] == true);
}

TEST_CASE("a stop for whose outcome there was no memory fails", "[daemon][control]") {
  ControlScene it;
  it.running();
  std::jthread end([&] { it.end(NoMemory()); });
  CHECK(it.ask({{"verb", "stop"}})["code"] == ENOMEM);
}

TEST_CASE("a stop of a job that failed to start tells so", "[daemon][control]") {
  ControlScene it;
  it.start.fail({ENOENT, "no such input"});
  (void)it.stops.enter(Event::start_failed);
  CHECK(it.ask({{"verb", "stop"}})["code"] == ECANCELED);
  ControlScene successor(1);
  successor.start.fail({EIO, "the store is gone"});
  (void)successor.stops.enter(Event::start_failed);
  const std::string error = successor.ask({{"verb", "stop"}})["error"];
  CHECK(error.contains("the store is gone"));
  CHECK(error.contains("efs status job"));
}

TEST_CASE("wait-end needs a thread of its own, and ends with its client", "[daemon][control]") {
  ControlScene it;
  it.running();
  it.alone = true;
  CHECK(it.ask({{"verb", "wait-end"}})["code"] == EAGAIN);
}

TEST_CASE("the progress tells what an unmount waits for", "[daemon][control]") {
  ControlScene it;
  it.running();
  it.mount.note = "waiting for programs";
  CHECK_FALSE(it.status.progress().note);
  (void)it.stops.enter(Event::stop_begun);
  CHECK(it.status.progress().note == "waiting for programs");
}

TEST_CASE("the status file has the progress of a transfer", "[daemon][control]") {
  ControlScene it;
  (void)it.stops.enter(Event::planned);
  it.progress.begin(4, 1000);
  it.progress.bytes_done = 250;
  const Json moving = it.status.status_file();
  CHECK((moving["state"] == "staging-in" && moving["progress"] == 0.25));
  CHECK((moving["files_total"] == 4 && moving["error"].is_null()));
  (void)it.stops.enter(Event::mounted);
  const Json idle = it.status.status_file();
  CHECK((idle["state"] == "running" && idle["progress"].is_null()));
}

}  // namespace
}  // namespace efs::daemon
