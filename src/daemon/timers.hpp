// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The clock and the timers of the worker, as an interface: a test moves the time itself.

#include <chrono>
#include <functional>
#include <memory>

#include "base/result.hpp"

namespace efs::daemon {

/// The destructor waits for a running action: call it without a lock that the action takes.
class Alarm {
 public:
  Alarm() = default;
  virtual ~Alarm() = default;
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
};

/// Thread-safe.
class Timers {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Timers() = default;
  virtual ~Timers() = default;
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  virtual Time now() const = 0;
  /// Runs `action`, which must not throw, once at `time` on another thread. Fails if no thread
  /// can be started.
  virtual Result<std::unique_ptr<Alarm>> at(Time time, std::function<void()> action) = 0;
  /// Blocks the calling thread until another thread ends the process.
  virtual void await_exit() = 0;
};

/// Each alarm has a thread of its own, which sleeps until its time.
class ThreadTimers final : public Timers {
 public:
  Time now() const override;
  Result<std::unique_ptr<Alarm>> at(Time time, std::function<void()> action) override;
  void await_exit() override;
};

}  // namespace efs::daemon
