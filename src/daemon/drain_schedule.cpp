// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/drain_schedule.hpp"

#include <algorithm>

namespace efs::daemon {

void DrainSchedule::put(std::uint64_t ino, const File& file) {
  const auto [at, is_new] = waiting_.try_emplace(ino, file);
  if (!is_new) {
    by_time_.erase({at->second.due, ino});
    at->second = file;
  }
  by_time_.emplace(file.due, ino);
}

// Each change puts the end of the settling off, but not beyond the longest one. The settling begins
// with the first of changes in a row, so a file that was open for long settles after its close.
void DrainSchedule::changed(std::uint64_t ino, Duration interval, Time now) {
  const auto known = waiting_.find(ino);
  File file{.first = now, .row = now, .last = now, .interval = interval, .due = {}};
  if (known != waiting_.end()) {
    file.first = known->second.first;
    file.row = now - known->second.last > settling ? now : known->second.row;
  }
  const Time begin = file.first + interval;
  file.due =
      std::max(begin, std::min(now + settling, std::max(begin, file.row) + longest_settling));
  put(ino, file);
}

std::optional<std::uint64_t> DrainSchedule::take(Time now) {
  if (now < paused_until_ || by_time_.empty() || by_time_.begin()->first > now) {
    return std::nullopt;
  }
  const std::uint64_t ino = by_time_.begin()->second;
  by_time_.erase(by_time_.begin());
  const auto file = waiting_.find(ino);
  taken_.insert_or_assign(ino, file->second);
  waiting_.erase(file);
  return ino;
}

void DrainSchedule::home(std::uint64_t ino) {
  taken_.erase(ino);
}

void DrainSchedule::forget(std::uint64_t ino) {
  taken_.erase(ino);
  if (const auto file = waiting_.find(ino); file != waiting_.end()) {
    by_time_.erase({file->second.due, ino});
    waiting_.erase(file);
  }
}

std::optional<DrainSchedule::File> DrainSchedule::untake(std::uint64_t ino) {
  const auto taken = taken_.find(ino);
  if (taken == taken_.end()) {
    return std::nullopt;
  }
  const File file = taken->second;
  taken_.erase(taken);
  return waiting_.contains(ino) ? std::nullopt : std::optional(file);
}

void DrainSchedule::again(std::uint64_t ino, Time now, Duration longest) {
  if (auto file = untake(ino)) {
    file->due = now + doubled(first_wait, file->tries++, longest);
    put(ino, *file);
  }
}

void DrainSchedule::later(std::uint64_t ino, Time now, Duration wait) {
  if (auto file = untake(ino)) {
    file->due = now + wait;
    put(ino, *file);
  }
}

DrainSchedule::Duration DrainSchedule::doubled(Duration first, unsigned times, Duration longest) {
  Duration time = first;
  for (unsigned i = 0; i < times && time < longest; ++i) {
    time *= 2;
  }
  return std::min(time, longest);
}

void DrainSchedule::failed(Time now) {
  paused_until_ = now + doubled(first_pause, failures_++, longest_wait);
}

void DrainSchedule::succeeded() {
  failures_ = 0;
  paused_until_ = {};
}

std::optional<DrainSchedule::Time> DrainSchedule::next() const {
  if (by_time_.empty()) {
    return std::nullopt;
  }
  return std::max(by_time_.begin()->first, paused_until_);
}

void DrainSchedule::clear() {
  waiting_.clear();
  taken_.clear();
  by_time_.clear();
}

}  // namespace efs::daemon
