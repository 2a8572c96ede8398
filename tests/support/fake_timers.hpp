// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A clock that a test moves, with timers that run on the thread of the test.

#include <algorithm>
#include <list>
#include <stdexcept>

#include "daemon/timers.hpp"

namespace efs::test {

/// Thrown where the worker would wait for the end of the process.
struct Exits : std::runtime_error {
  Exits() : std::runtime_error("the process ends") {}
};

/// Not thread-safe.
class FakeTimers final : public daemon::Timers {
 public:
  Time now() const override { return now_; }

  Result<std::unique_ptr<daemon::Alarm>> at(Time time, std::function<void()> action) override {
    if (no_threads) {
      return fail(EAGAIN);
    }
    const auto entry = alarms_.insert(alarms_.end(), {time, std::move(action)});
    return std::make_unique<Entry>(*this, entry);
  }

  void await_exit() override { throw Exits(); }

  /// Moves the clock and runs the actions of the alarms that are due, in the order of their times.
  void advance(Time::duration time) {
    const Time until = now_ + time;
    while (true) {
      const auto next = std::ranges::min_element(alarms_, {}, &Set::time);
      if (next == alarms_.end() || next->time > until) {
        break;
      }
      now_ = std::max(now_, next->time);
      next->time = Time::max();  // an alarm rings once
      next->action();
    }
    now_ = until;
  }

  /// The number of alarms that have not rung.
  std::size_t waiting() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(alarms_, [](const Set& one) { return one.time != Time::max(); }));
  }

  bool no_threads = false;

 private:
  struct Set {
    Time time;
    std::function<void()> action;
  };

  class Entry final : public daemon::Alarm {
   public:
    Entry(FakeTimers& timers, std::list<Set>::iterator entry) : timers_(timers), entry_(entry) {}

    ~Entry() override { timers_.alarms_.erase(entry_); }

   private:
    FakeTimers& timers_;
    std::list<Set>::iterator entry_;
  };

  Time now_{std::chrono::hours(1)};
  std::list<Set> alarms_;
};

}  // namespace efs::test
