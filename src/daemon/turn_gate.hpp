// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The turn of an instance in one direction has one user at a time (SlotClient): the others wait
// here for it.

#include <atomic>
#include <cerrno>
#include <chrono>

#include "base/mutex.hpp"
#include "base/result.hpp"

namespace efs::daemon {

/// Thread-safe.
class TurnGate {
 public:
  /// Waits until no other user is inside. ECANCELED once `cancel` is set; then leave() is not due.
  Status enter(const std::atomic<bool>& cancel) {
    constexpr auto look = std::chrono::milliseconds(100);
    ++waiting_;
    const MutexLock lock(mutex_);
    while (taken_ && !cancel) {
      (void)changed_.wait_until(mutex_, std::chrono::steady_clock::now() + look);
    }
    --waiting_;
    if (cancel) {
      return fail(ECANCELED, "cancelled while waiting for a turn at the PFS");
    }
    taken_ = true;
    return {};
  }

  void leave() {
    {
      const MutexLock lock(mutex_);
      taken_ = false;
    }
    changed_.notify_all();
  }

  bool is_awaited() const { return waiting_ > 0; }

 private:
  Mutex mutex_;  // rank 90 (leaf)
  Condition changed_;
  std::atomic<unsigned> waiting_{0};
  bool taken_ EFS_GUARDED_BY(mutex_) = false;
};

}  // namespace efs::daemon
