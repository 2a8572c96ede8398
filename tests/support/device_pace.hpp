// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The pace of a slow device, such as NVRAM, for ObservedBackend.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "support/observed_backend.hpp"

namespace efs::test {

using Moment = std::chrono::nanoseconds;  // since any fixed moment

/// Time for a DevicePace. Thread-safe.
class PaceClock {
 public:
  virtual ~PaceClock() = default;
  virtual Moment now() = 0;
  virtual void sleep_until(Moment moment) = 0;
};

/// 0: without this limit.
struct Pace {
  std::uint64_t bytes_per_second = 0;
  std::uint64_t calls_per_second = 0;
  std::chrono::nanoseconds latency{0};  // of each call; calls wait for theirs in parallel
};

/// Makes each call wait until the device has served it. The device serves one call after the other,
/// and does not save up the time in which it has nothing to do. Thread-safe.
class DevicePace {
 public:
  DevicePace(Pace pace, PaceClock& clock) : pace_(pace), clock_(clock) {}

  void serve(std::size_t bytes) {
    Moment served;
    {
      const std::lock_guard lock(mutex_);
      free_at_ = std::max(free_at_, clock_.now()) + cost(bytes, pace_.bytes_per_second) +
                 cost(1, pace_.calls_per_second);
      served = free_at_ + pace_.latency;
    }
    clock_.sleep_until(served);
  }

 private:
  static std::chrono::nanoseconds cost(std::uint64_t units, std::uint64_t per_second) {
    return per_second == 0 ? std::chrono::nanoseconds(0)
                           : std::chrono::nanoseconds(units * 1'000'000'000 / per_second);
  }

  const Pace pace_;
  PaceClock& clock_;
  std::mutex mutex_;
  Moment free_at_{0};
};

/// `inner` at this pace. The clock is borrowed.
inline std::unique_ptr<Backend> make_paced(std::unique_ptr<Backend> inner, Pace pace,
                                           PaceClock& clock) {
  auto device = std::make_shared<DevicePace>(pace, clock);
  return std::make_unique<ObservedBackend>(
      std::move(inner), [device](const char*, std::size_t bytes) { device->serve(bytes); });
}

}  // namespace efs::test
