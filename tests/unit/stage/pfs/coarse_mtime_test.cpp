// SPDX-License-Identifier: BSD-3-Clause
// A version whose times are whole seconds is read when its second is over.

#include <catch2/catch_test_macros.hpp>

#include "stage/pfs/coarse_mtime.hpp"

using namespace efs;
using namespace efs::stage;

namespace {

constexpr Nanoseconds a_second = 1'000'000'000;
constexpr Nanoseconds that_second = 1'700'000'000 * a_second;

fs::Origin changed_at(Nanoseconds ctime, Nanoseconds mtime) {
  return {.device = 1, .inode = 2, .size = 3, .mtime = mtime, .ctime = ctime};
}

Nanoseconds rest(const fs::Origin& seen, Nanoseconds now) {
  return rest_of_second(seen, now).count();
}

}  // namespace

TEST_CASE(
    "what was changed in this very second is read two seconds behind it, where times are whole "
    "seconds",
    "[stage][in]") {
  const auto seen = changed_at(that_second, that_second);
  CHECK(rest(seen, that_second) == 2 * a_second);
  CHECK(rest(seen, that_second + a_second / 2) == 3 * a_second / 2);
  CHECK(rest(seen, that_second - a_second) == 3 * a_second);  // the PFS's clock is ahead
  CHECK(rest(seen, that_second + 2 * a_second) == 0);
  CHECK(rest(seen, that_second - 3 * a_second) == 0);  // by so much that nothing tells
  CHECK(rest(changed_at(that_second, that_second - 3600 * a_second), that_second) == 2 * a_second);
}

TEST_CASE("finer times tell more: nothing waits for them", "[stage][in]") {
  CHECK(rest(changed_at(that_second + 1, that_second + 1), that_second + 2) == 0);
  CHECK(rest(changed_at(that_second, that_second - 1), that_second) == 0);
  CHECK(rest(changed_at(that_second + 1, that_second), that_second + 2) == 0);
}

TEST_CASE("what was changed just now is read a tick of the clock later", "[stage][in]") {
  const auto rest_now = [](Nanoseconds mtime, Nanoseconds now) {
    return rest_of_tick(changed_at(mtime, mtime), now).count();
  };
  CHECK(rest_now(that_second + 1, that_second + 2) >= 10'000'000);
  CHECK(rest_now(that_second, that_second - a_second) >= 10'000'000);  // the PFS's clock is ahead
  CHECK(rest_now(that_second, that_second + 5 * a_second) == 0);
  CHECK(rest_of_tick(changed_at(that_second, 0), that_second).count() > 0);  // the mtime is set
}

TEST_CASE("who waits for a second to pass waits until it has", "[stage][in]") {
  const Nanoseconds now = wall_clock() / a_second * a_second;
  const std::atomic<bool> cancel{false};
  let_second_pass(changed_at(now, now), cancel);
  CHECK(wall_clock() >= now + 2 * a_second);
}
