// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/restart_policy.hpp"

#include <catch2/catch_test_macros.hpp>

using efs::daemon::RestartPolicy;
using namespace std::chrono_literals;

TEST_CASE("A worker that dies without having answered anything new is given up after ten deaths",
          "[daemon][restart]") {
  RestartPolicy policy;
  RestartPolicy::Clock::time_point now{};
  for (unsigned i = 1; i < RestartPolicy::most_fruitless; ++i) {
    CHECK(policy.died(false, now += 1s));
  }
  CHECK_FALSE(policy.died(false, now += 1s));
}

TEST_CASE("What kills workers for some seconds does not end it", "[daemon][restart]") {
  RestartPolicy policy;
  const RestartPolicy::Clock::time_point begin{};
  auto now = begin;
  for (unsigned i = 1; i <= RestartPolicy::at_once; ++i) {
    CHECK(policy.died(false, now += 10ms) == 0ms);
  }
  std::chrono::milliseconds last{};
  while (const auto pause = policy.died(false, now += 10ms)) {
    CHECK(*pause >= last);
    CHECK(*pause <= RestartPolicy::longest_pause);
    now += last = *pause;
  }
  CHECK(now - begin > 3s);
  CHECK(now - begin < 10s);
  // A worker that has answered a request gets a successor at once.
  RestartPolicy again;
  for (int i = 0; i < 6; ++i) {
    (void)again.died(false, now += 10ms);
  }
  CHECK(again.died(true, now += 10ms) == 0ms);
}

TEST_CASE("An answered request starts the count again", "[daemon][restart]") {
  RestartPolicy policy;
  RestartPolicy::Clock::time_point now{};
  for (int i = 0; i < 5000; ++i) {
    REQUIRE(policy.died(i % 5 == 0, now += 100ms));
  }
}

TEST_CASE("Deaths that come too fast end it, whatever was answered", "[daemon][restart]") {
  RestartPolicy policy;
  RestartPolicy::Clock::time_point now{};
  std::size_t lived = 0;
  while (policy.died(true, now += 10ms)) {
    REQUIRE(++lived <= RestartPolicy::most_in_window);
  }
  CHECK(lived == RestartPolicy::most_in_window);
}
