// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Repeated work that a request does when the work is due. A mount without requests therefore has no
// timer that wakes the daemon.

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

namespace efs::fuse {

/// Thread-safe. `work` returns the time until the next call, and is called by one thread at a time.
/// It is due at the first request. If it throws, it is not called again.
class DueWork {
 public:
  using Clock = std::chrono::steady_clock;

  explicit DueWork(std::function<Clock::duration()> work) : work_(std::move(work)) {}

  void run_if_due(Clock::time_point now) {
    auto due = due_.load(std::memory_order_relaxed);
    if (now.time_since_epoch().count() < due ||
        !due_.compare_exchange_strong(due, never, std::memory_order_acquire)) {
      return;
    }
    due_.store((now + work_()).time_since_epoch().count(), std::memory_order_release);
  }

 private:
  static constexpr auto never = Clock::time_point::max().time_since_epoch().count();

  const std::function<Clock::duration()> work_;
  std::atomic<Clock::rep> due_{0};
};

}  // namespace efs::fuse
