// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checkpoint/pace.hpp"

#include <algorithm>

namespace efs::objects {

namespace {

constexpr std::chrono::milliseconds burst{5};

}  // namespace

Moment Pace::end_of(std::uint64_t bytes, Moment begun) {
  const std::chrono::duration<double> time(static_cast<double>(bytes) / rate_);
  free_ = std::max(free_, begun - burst);
  free_ += std::chrono::duration_cast<Moment::duration>(time);
  return free_;
}

void Rate::add(std::uint64_t bytes, std::chrono::duration<double> time) {
  if (bytes > 0 && time.count() > 0) {
    const double rate = static_cast<double>(bytes) / time.count();
    value_ = value_ > 0 ? (value_ + rate) / 2 : rate;
  }
}

std::uint64_t direct_share(std::uint64_t bytes, double fast_rate, double store_rate) {
  if (!(fast_rate > 0) || !(store_rate > 0)) {
    return bytes / 2;
  }
  const double share = store_rate / (store_rate + fast_rate);
  return std::min(bytes, static_cast<std::uint64_t>(static_cast<double>(bytes) * share));
}

}  // namespace efs::objects
