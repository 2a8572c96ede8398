// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/deadline.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace efs::daemon {
namespace {

// The grace time after the deadline, in which the stop may still complete and report all results as
// exported.
constexpr auto grace = std::chrono::seconds(5);
// The time that a cancelled start may still take.
constexpr auto patience_with_start = std::chrono::seconds(10);
constexpr double longest = 1e8;  // seconds, three years: a larger value would overflow the clock

}  // namespace

StopTimes StopTimes::within(double seconds, Time now) {
  seconds = std::min(seconds, longest);
  // The last writes must still become durable and get their names, so the export ends before the
  // deadline.
  const double margin = std::clamp(seconds / 10, std::min(1.0, seconds / 2), 10.0);
  const auto in = [now](double time) {
    return now + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(time));
  };
  return {.until = in(seconds - margin), .gone_by = in(seconds)};
}

StopTimes::Time StopTimes::quarter(Time begin, Duration most) const {
  return begin + std::min<Duration>(most, (*until - begin) / 4);
}

Deadline::Deadline(Timers& timers, Actions actions)
    : timers_(timers), actions_(std::move(actions)) {}

std::unique_ptr<Alarm> Deadline::end_export_at(Time until) {
  auto alarm = timers_.at(until, actions_.cut_export);
  if (alarm) {
    return std::move(*alarm);
  }
  log::warn("event=no_deadline reason=\"{}\"", describe(alarm.error()));
  return nullptr;
}

void Deadline::hurry(Time until) {
  (void)replace(&Deadline::hurry_, end_export_at(until));
}

bool Deadline::is_hurried() const {
  const MutexLock lock(mutex_);
  return hurry_ != nullptr;
}

void Deadline::unhurry() {
  (void)replace(&Deadline::hurry_, nullptr);
}

std::unique_ptr<Alarm> Deadline::set_last_resort(std::optional<Time> gone_by) {
  return replace(&Deadline::last_resort_,
                 gone_by ? alarm_at(*gone_by + grace, actions_.leave) : nullptr);
}

std::unique_ptr<Alarm> Deadline::limit_start(std::optional<Time> gone_by) {
  const auto soon = now() + patience_with_start;
  return replace(&Deadline::start_resort_,
                 alarm_at(gone_by ? std::min(soon, *gone_by + grace) : soon, actions_.give_up));
}

std::unique_ptr<Alarm> Deadline::end_start() {
  return replace(&Deadline::start_resort_, nullptr);
}

void Deadline::begin_stop() {
  const MutexLock lock(mutex_);
  end_claimed_ = false;
}

void Deadline::claim_end() {
  {
    const MutexLock lock(mutex_);
    end_claimed_ = true;
    if (!exit_claimed_) {
      return;
    }
  }
  timers_.await_exit();
}

bool Deadline::claim_exit() {
  const MutexLock lock(mutex_);
  return !end_claimed_ && !std::exchange(exit_claimed_, true);
}

std::unique_ptr<Alarm> Deadline::alarm_at(Time time, const std::function<void()>& action) {
  auto alarm = timers_.at(time, action);
  return alarm ? std::move(*alarm) : nullptr;
}

std::unique_ptr<Alarm> Deadline::replace(std::unique_ptr<Alarm> Deadline::* alarm,
                                         std::unique_ptr<Alarm> by) {
  const MutexLock lock(mutex_);
  return std::exchange(this->*alarm, std::move(by));
}

}  // namespace efs::daemon
