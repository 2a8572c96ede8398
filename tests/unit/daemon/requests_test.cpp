// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/requests.hpp"

#include <catch2/catch_test_macros.hpp>

namespace efs::daemon {
namespace {

namespace requests = control::requests;

TEST_CASE("a request that says nothing means what the protocol says", "[control]") {
  const auto load = load_of({}, {"name"});
  REQUIRE(load);
  CHECK((load->names == std::vector<std::string>{"name"} && !load->replace && !load->force &&
         load->backend.empty() && load->part.whole()));
  const auto unload = unload_of({}, {"name"});
  REQUIRE(unload);
  CHECK((unload->names == std::vector<std::string>{"name"} && !unload->as_is && !unload->remove &&
         unload->part.whole()));
  CHECK(timeout_of({}) > std::chrono::years(30));
  CHECK(asked_ago_of({}) == 0);
}

TEST_CASE("each field of a request has its effect", "[control]") {
  const auto load = load_of({.paths = {},
                             .replace = true,
                             .force = true,
                             .backend = "ram",
                             .offset = UINT64_MAX,
                             .size = 3},
                            {});
  REQUIRE(load);
  CHECK((load->replace && load->force && load->backend == "ram" &&
         load->part == stage::Part{UINT64_MAX, 3}));
  CHECK_FALSE(load_of({.paths = {}, .replace = true, .backend = {}}, {})->force);
  const auto unload = unload_of({.paths = {}, .as_is = true, .backend = {}, .offset = 1}, {});
  REQUIRE(unload);
  CHECK((unload->as_is && !unload->remove && unload->part == stage::Part{1, 0}));
  CHECK(unload_of({.paths = {}, .remove = true, .backend = {}}, {})->remove);
  CHECK(class_of("persistent") == fs::Keep::persistent);
  CHECK(class_of("temporary") == fs::Keep::temporary);
  CHECK(class_of("default") == fs::Keep::by_rule);
  CHECK(asked_ago_of({.asked_ago = 0.5}) == 0.5);
  CHECK(asked_ago_of({.asked_ago = -1}) == 0);
  CHECK(asked_ago_of({.asked_ago = 1e308}) == 1e8);
  CHECK(timeout_of(0).count() == 0);
  CHECK(timeout_of(UINT64_MAX).count() == std::int64_t{1} << 40);
}

TEST_CASE("what does not go together, and what is too much, is EINVAL with a text", "[control]") {
  CHECK(load_of({.paths = {}, .force = true, .backend = {}}, {}).error().what ==
        "force requires replace");
  CHECK(unload_of({.paths = {}, .remove = true, .backend = {}, .size = 1}, {}).error().what ==
        "remove requires whole files");
  CHECK(class_of("none").error().what.contains("unknown class \"none\""));
  CHECK(check_paths({}).error().code == EINVAL);
  CHECK(check_paths(std::vector<std::string>(10001, "a")).error().code == EINVAL);
  CHECK(check_paths(std::vector<std::string>(10000, "a")));
}

}  // namespace
}  // namespace efs::daemon
