// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/timers.hpp"

#include <unistd.h>

#include "base/timer_thread.hpp"

namespace efs::daemon {
namespace {

class ThreadAlarm final : public Alarm {
 public:
  explicit ThreadAlarm(std::unique_ptr<TimerThread> thread) : thread_(std::move(thread)) {}

 private:
  std::unique_ptr<TimerThread> thread_;
};

}  // namespace

Timers::Time ThreadTimers::now() const {
  return std::chrono::steady_clock::now();
}

Result<std::unique_ptr<Alarm>> ThreadTimers::at(Time time, std::function<void()> action) {
  auto thread = TimerThread::start(time, std::move(action));
  if (!thread) {
    return std::unexpected(thread.error());
  }
  return std::make_unique<ThreadAlarm>(std::move(*thread));
}

void ThreadTimers::await_exit() {
  while (true) {
    ::pause();
  }
}

}  // namespace efs::daemon
