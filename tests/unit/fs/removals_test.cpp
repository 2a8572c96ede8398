// SPDX-License-Identifier: BSD-3-Clause
#include "fs/removals.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <thread>

namespace efs::removals_test {

using fs::Removals;
using fs::Removing;

TEST_CASE("removals: each one is counted", "[fs]") {
  Removals removals;
  CHECK(removals.noted() == 0);
  removals.note();
  removals.note();
  CHECK(removals.noted() == 2);
  CHECK_FALSE(removals.any_running());
}

TEST_CASE("removals: a wait ends when the last of them has ended", "[fs]") {
  Removals removals;
  removals.wait();  // there is none
  std::optional<Removing> first(removals), second(removals);
  std::atomic<bool> is_over = false;
  std::thread waits([&] {
    removals.wait();
    is_over = true;
  });
  first.reset();
  CHECK(removals.any_running());
  CHECK_FALSE(is_over);
  second.reset();
  waits.join();
  CHECK(is_over);
  CHECK_FALSE(removals.any_running());
}

}  // namespace efs::removals_test
