// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/requests.hpp"

#include <catch2/catch_test_macros.hpp>

#include "base/json_text.hpp"

namespace efs::daemon {
namespace {

using control::Json;

Json request(const std::string& text) {
  return json_from_text(text);
}

TEST_CASE("a request that says nothing means what the protocol says", "[control]") {
  const Json nothing = Json::object();
  const StopFields stop = stop_of(nothing);
  CHECK((stop.stage_out && !stop.keep && !stop.cut_off && !stop.merge && !stop.receipt));
  CHECK((stop.supervisor == 0 && stop.deadline == 0 && stop.asked_ago == 0));
  CHECK_FALSE(is_of_starter(nothing));
  CHECK_FALSE(has_paths(nothing));
  const auto load = load_of(nothing, {"name"});
  REQUIRE(load);
  CHECK((load->names == std::vector<std::string>{"name"} && !load->replace && !load->force &&
         load->backend.empty() && load->part.whole()));
  const auto unload = unload_of(nothing, {"name"});
  REQUIRE(unload);
  CHECK((!unload->as_is && !unload->remove && unload->part.whole()));
  CHECK(timeout_of(nothing) > std::chrono::years(30));
  CHECK_THROWS(paths_of(nothing));
  CHECK_THROWS(path_of(nothing));
  CHECK_THROWS(class_of(nothing));
  CHECK_THROWS(task_of(nothing));
}

TEST_CASE("each field of a request is read into its place", "[control]") {
  const StopFields stop = stop_of(request(
      R"({"supervisor": 7, "stage_out": false, "keep": true, "deadline": 2.5, "asked_ago": 0.5})"));
  CHECK((stop.supervisor == 7 && !stop.stage_out && stop.keep && stop.deadline == 2.5 &&
         stop.asked_ago == 0.5));
  CHECK((!stop.cut_off && !stop.merge && !stop.receipt));
  CHECK(stop_of(request(R"({"cut_off": true})")).cut_off);
  CHECK(stop_of(request(R"({"merge": true})")).merge);
  CHECK(stop_of(request(R"({"receipt": true})")).receipt);
  CHECK(stop_of(request(R"({"asked_ago": -1})")).asked_ago == 0);
  CHECK(stop_of(request(R"({"asked_ago": 1e308})")).asked_ago == 1e8);
  const auto load = load_of(request(R"({"replace": true, "force": true, "backend": "ram",)"
                                    R"( "offset": 18446744073709551615, "size": 3})"),
                            {});
  REQUIRE(load);
  CHECK((load->replace && load->force && load->backend == "ram" &&
         load->part == stage::Part{UINT64_MAX, 3}));
  CHECK_FALSE(load_of(request(R"({"replace": true})"), {})->force);
  const auto unload = unload_of(request(R"({"as_is": true, "offset": 1})"), {});
  REQUIRE(unload);
  CHECK((unload->as_is && !unload->remove && unload->part == stage::Part{1, 0}));
  CHECK(unload_of(request(R"({"remove": true})"), {})->remove);
  CHECK(class_of(request(R"({"class": "persistent"})")) == fs::Keep::persistent);
  CHECK(class_of(request(R"({"class": "temporary"})")) == fs::Keep::temporary);
  CHECK(class_of(request(R"({"class": "default"})")) == fs::Keep::by_rule);
  CHECK(task_of(request(R"({"task": 12})")) == 12);
  CHECK(timeout_of(request(R"({"timeout_ms": 0})")).count() == 0);
  CHECK(timeout_of(request(R"({"timeout_ms": 18446744073709551615})")).count() == std::int64_t{1}
                                                                                      << 40);
}

TEST_CASE("what does not go together, and what is too much, is EINVAL with a text", "[control]") {
  CHECK(load_of(request(R"({"force": true})"), {}).error().what == "force requires replace");
  CHECK(unload_of(request(R"({"remove": true, "size": 1})"), {}).error().what ==
        "remove requires whole files");
  CHECK(class_of(request(R"({"class": "none"})")).error().what.contains("unknown class \"none\""));
  CHECK(paths_of(request(R"({"paths": []})")).error().code == EINVAL);
  CHECK(paths_of({{"paths", std::vector<std::string>(10001, "a")}}).error().code == EINVAL);
  CHECK(paths_of({{"paths", std::vector<std::string>(10000, "a")}})->size() == 10000);
}

TEST_CASE("a number that is negative, or none, is no offset, task, process or time", "[control]") {
  for (const std::string value :
       {"-1", "1.5", "1e300", "18446744073709551616", "true", "null", "\"1\"", "[]"}) {
    INFO(value);
    CHECK_THROWS(load_of(request(R"({"offset": )" + value + "}"), {}));
    CHECK_THROWS(unload_of(request(R"({"size": )" + value + "}"), {}));
    CHECK_THROWS(task_of(request(R"({"task": )" + value + "}")));
    CHECK_THROWS(timeout_of(request(R"({"timeout_ms": )" + value + "}")));
    CHECK_THROWS(stop_of(request(R"({"supervisor": )" + value + "}")));
  }
  for (const char* field : {"stage_out", "keep", "cut_off", "merge", "receipt"}) {
    CHECK_THROWS(stop_of({{field, 1}}));
  }
  for (const char* field : {"deadline", "asked_ago"}) {
    CHECK_THROWS(stop_of({{field, "1"}}));
  }
}

}  // namespace
}  // namespace efs::daemon
