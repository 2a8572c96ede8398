// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Rates: the pace that writes to a store keep, and the share of a checkpoint that each of two media
// gets. Nothing here reads a clock.

#include <chrono>
#include <cstdint>

namespace efs::objects {

using Moment = std::chrono::steady_clock::time_point;

/// A token bucket: the ends of writes to storage that has a constant rate.
class Pace {
 public:
  /// 0: no limit.
  explicit Pace(double bytes_per_second = 0) : rate_(bytes_per_second) {}

  bool limited() const { return rate_ > 0; }

  /// Returns the moment at which a write of these bytes ends, if the write before has ended. Up to
  /// 5 ms of unused time is made up for.
  Moment end_of(std::uint64_t bytes, Moment begun);

 private:
  double rate_;
  Moment free_;  // the end of the last write
};

/// The mean of measured rates; recent ones count more.
class Rate {
 public:
  /// Bytes per second; 0: not measured.
  double value() const { return value_; }

  void add(std::uint64_t bytes, std::chrono::duration<double> time);

 private:
  double value_ = 0;
};

/// Returns how many of the bytes go directly to the store so that both media end at the same time.
/// Rates are in bytes per second. Half, if a rate is not measured.
std::uint64_t direct_share(std::uint64_t bytes, double fast_rate, double store_rate);

}  // namespace efs::objects
