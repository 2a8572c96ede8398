#include "daemon/restart_policy.hpp"

#include <catch2/catch_test_macros.hpp>

using efs::daemon::RestartPolicy;
using namespace std::chrono_literals;

TEST_CASE("A worker that dies without having answered anything new is given up after ten deaths", "[daemon][restart]") {
  RestartPolicy policy;
  RestartPolicy::Clock::time_point now{};
  for (unsigned i = 1; i < RestartPolicy::most_fruitless; ++i) CHECK(policy.died(false, now += 1s));
  CHECK_FALSE(policy.died(false, now += 1s));
}

TEST_CASE("An answered request starts the count again", "[daemon][restart]") {
  RestartPolicy policy;
  RestartPolicy::Clock::time_point now{};
  for (int i = 0; i < 5000; ++i) REQUIRE(policy.died(i % 5 == 0, now += 100ms));
}

TEST_CASE("Deaths that come too fast end it, whatever was answered", "[daemon][restart]") {
  RestartPolicy policy;
  RestartPolicy::Clock::time_point now{};
  std::size_t lived = 0;
  while (policy.died(true, now += 10ms)) REQUIRE(++lived <= RestartPolicy::most_in_window);
  CHECK(lived == RestartPolicy::most_in_window);
}
