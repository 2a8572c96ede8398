// SPDX-License-Identifier: BSD-3-Clause
#include "control/replies.hpp"

#include <catch2/catch_test_macros.hpp>

#include "base/json_text.hpp"

namespace efs::control::replies {
namespace {

template <typename Reply>
void round_trip(const Reply& reply, bool success) {
  const Json line = json_from_text(json_to_text(to_json(reply)));
  CHECK(line["event"] == "result");
  CHECK(is_success(line) == success);
  CHECK(from_json<Reply>(line) == reply);
}

TEST_CASE("a reply is the same on the other side", "[control]") {
  round_trip(TaskStarted{.task = UINT64_MAX}, true);
  round_trip(Counted{.count = 3}, true);
  round_trip(Failure{.code = EBUSY, .error = "in use\nby all", .lines = true, .exit = 2}, false);
  round_trip(Failure{}, false);
}

TEST_CASE("a failure is the line of its error", "[control]") {
  for (const bool lines : {false, true}) {
    const Error error{EBUSY, "in use", lines};
    const Json line = error_line(error, 2);
    const auto failure = from_json<Failure>(line);
    CHECK(failure == Failure{.code = EBUSY, .error = describe(error), .lines = lines, .exit = 2});
    CHECK(to_json(failure) == line);
  }
}

TEST_CASE("a reader of a reply needs no field and trusts none", "[control]") {
  CHECK(from_json<TaskStarted>(Json::object()).task == 0);
  CHECK(from_json<TaskStarted>({{"task", -4}}).task == 0);
  CHECK(from_json<TaskStarted>({{"task", "5"}}).task == 0);
  CHECK(from_json<TaskStarted>({{"task", 5U}, {"later", true}}).task == 5);
  CHECK(from_json<Failure>({{"code", "EIO"}, {"error", 7}}) == Failure{});
  CHECK_FALSE(is_success(Json::object()));
  CHECK_FALSE(is_success({{"ok", "true"}}));
}

}  // namespace
}  // namespace efs::control::replies
