#include "base/timer_thread.hpp"

namespace efs {

TimerThread::TimerThread(Clock::time_point first, std::function<void()> action, std::optional<Clock::duration> interval)
    : thread_([this, first, action = std::move(action), interval] {
        for (auto next = first; wait_until(next); next = Clock::now() + *interval) {
          action();
          if (!interval) return;
        }
      }) {}

TimerThread::~TimerThread() {
  MutexLock lock(mutex_);
  ending_ = true;
  over_.notify_all();
}

bool TimerThread::wait_until(Clock::time_point time) {
  MutexLock lock(mutex_);
  while (!ending_ && over_.wait_until(mutex_, time)) {}
  return !ending_;
}

}  // namespace efs
