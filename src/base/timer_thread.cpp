// SPDX-License-Identifier: BSD-3-Clause
#include "base/timer_thread.hpp"

#include "base/thread.hpp"

namespace efs {

Result<std::unique_ptr<TimerThread>> TimerThread::start(Clock::time_point first,
                                                        std::function<void()> action,
                                                        std::optional<Clock::duration> interval) {
  std::unique_ptr<TimerThread> timer(new TimerThread);
  auto thread = start_thread([raw = timer.get(), first, action = std::move(action), interval] {
    for (auto next = first; raw->wait_until(next); next = Clock::now() + *interval) {
      action();
      if (!interval) {
        return;
      }
    }
  });
  if (!thread) {
    return std::unexpected(std::move(thread.error()));
  }
  timer->thread_ = std::move(*thread);
  return timer;
}

TimerThread::~TimerThread() {
  MutexLock lock(mutex_);
  ending_ = true;
  over_.notify_all();
}

bool TimerThread::wait_until(Clock::time_point time) {
  MutexLock lock(mutex_);
  while (!ending_ && over_.wait_until(mutex_, time)) {
  }
  return !ending_;
}

}  // namespace efs
