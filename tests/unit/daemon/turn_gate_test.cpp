// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/turn_gate.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

TEST_CASE("one user is inside at a time, and a wait can be cancelled", "[daemon]") {
  efs::daemon::TurnGate gate;
  std::atomic<bool> goes_on{false}, is_cancelled{true};
  REQUIRE(gate.enter(goes_on));
  CHECK_FALSE(gate.is_awaited());
  CHECK(gate.enter(is_cancelled).error().code == ECANCELED);
  std::atomic<bool> inside{false};
  std::thread other([&] {
    inside = gate.enter(goes_on).has_value();
    gate.leave();
  });
  while (!gate.is_awaited()) {
    std::this_thread::yield();
  }
  CHECK_FALSE(inside);
  gate.leave();
  other.join();
  CHECK(inside);
  CHECK_FALSE(gate.is_awaited());
  CHECK(gate.enter(goes_on));
}
