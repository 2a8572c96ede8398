#pragma once
// A thread that does something at a time, once or again and again, and ends at once when its owner
// lets it go.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.hpp"
#include "base/result.hpp"

namespace efs {

/// Destruction waits for an action that runs. `action` must not throw.
class TimerThread {
 public:
  using Clock = std::chrono::steady_clock;
  /// At `first`, then, where it is given, each `interval` after the end of the last. An error where
  /// no thread can be had.
  static Result<std::unique_ptr<TimerThread>> start(
      Clock::time_point first, std::function<void()> action,
      std::optional<Clock::duration> interval = std::nullopt);
  ~TimerThread();
  TimerThread(const TimerThread&) = delete;
  TimerThread& operator=(const TimerThread&) = delete;

 private:
  TimerThread() = default;
  /// False: the owner wants no more.
  bool wait_until(Clock::time_point time);

  Mutex mutex_;  // rank 95: nothing is taken under it
  Condition over_;
  bool ending_ EFS_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace efs
