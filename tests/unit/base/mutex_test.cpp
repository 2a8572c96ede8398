// SPDX-License-Identifier: BSD-3-Clause
// The time behind other threads' locks counts only for the thread that has to wait.
#include "base/mutex.hpp"

#include <catch2/catch_test_macros.hpp>

#include <thread>

using namespace efs;

TEST_CASE("a wait for a lock is counted, a lock that is free is not", "[threads]") {
  std::thread([] {
    bool locked = false;
    lock_counted([] { return true; }, [&] { locked = true; });
    CHECK_FALSE(locked);
    CHECK(waited_for_locks.count() == 0);
    lock_counted([] { return false; },
                 [&] {
                   for (const auto begun = std::chrono::steady_clock::now();
                        std::chrono::steady_clock::now() == begun;) {
                   }
                   locked = true;
                 });
    CHECK(locked);
    CHECK(waited_for_locks.count() > 0);
  }).join();
}
