// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A thread that runs an action at a given time, once or repeatedly. It ends at once when its owner
// destroys the object.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.hpp"
#include "base/result.hpp"

namespace efs {

/// The destructor waits for a running action. `action` must not throw.
class TimerThread {
 public:
  using Clock = std::chrono::steady_clock;
  /// Runs `action` at `first`. With `interval`, repeats it that long after the end of the previous
  /// run. Returns an error if no thread can be started.
  static Result<std::unique_ptr<TimerThread>> start(
      Clock::time_point first, std::function<void()> action,
      std::optional<Clock::duration> interval = std::nullopt);
  ~TimerThread();
  TimerThread(const TimerThread&) = delete;
  TimerThread& operator=(const TimerThread&) = delete;

 private:
  TimerThread() = default;
  /// Returns false if the owner destroys the object.
  bool wait_until(Clock::time_point time);

  Mutex mutex_;  // rank 95: no lock is acquired under it
  Condition over_;
  bool ending_ EFS_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace efs
