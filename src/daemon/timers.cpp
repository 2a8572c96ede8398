// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/timers.hpp"

#include <unistd.h>

#include "base/timer_thread.hpp"

namespace efs::daemon {
namespace {

struct ThreadAlarm final : Alarm {
  std::unique_ptr<TimerThread> thread;
};

}  // namespace

Timers::Time ThreadTimers::now() const {
  return std::chrono::steady_clock::now();
}

Result<std::unique_ptr<Alarm>> ThreadTimers::at(Time time, std::function<void()> action) {
  // Allocated first: to end the thread again would wait for its action, perhaps for a lock of the
  // caller.
  auto alarm = std::make_unique<ThreadAlarm>();
  auto thread = TimerThread::start(time, std::move(action));
  if (!thread) {
    return std::unexpected(thread.error());
  }
  alarm->thread = std::move(*thread);
  return alarm;
}

void ThreadTimers::await_exit() {
  while (true) {
    ::pause();
  }
}

}  // namespace efs::daemon
