// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/coarse_mtime.hpp"

#include <algorithm>
#include <thread>

#include "base/clock.hpp"

namespace efs::stage {
namespace {

constexpr Nanoseconds one_second = 1'000'000'000;
constexpr Nanoseconds longest_tick = one_second / 50;  // twice that of HZ=100
constexpr Nanoseconds most_apart = 4 * one_second;     // clocks of node and PFS, and the tick

bool in_whole_seconds(const fs::Origin& seen) {
  return seen.ctime % one_second == 0 && seen.mtime % one_second == 0;
}

void wait(std::chrono::nanoseconds time, const std::atomic<bool>& cancel) {
  if (time.count() == 0) {
    return;
  }
  const auto end = std::chrono::steady_clock::now() + time;
  while (!cancel && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

std::chrono::nanoseconds rest_of_second(const fs::Origin& seen, Nanoseconds now) {
  if (!in_whole_seconds(seen)) {
    return {};
  }
  const Nanoseconds rest = seen.ctime + 2 * one_second - now;
  return std::chrono::nanoseconds(rest > 0 && rest <= 4 * one_second ? rest : 0);
}

void let_second_pass(const fs::Origin& seen, const std::atomic<bool>& cancel) {
  if (!in_whole_seconds(seen)) {
    return;  // before reading the clock, because this runs for every input
  }
  wait(rest_of_second(seen, wall_clock()), cancel);
}

std::chrono::nanoseconds rest_of_tick(const fs::Origin& seen, Nanoseconds now) {
  const Nanoseconds age = now - std::max(seen.ctime, seen.mtime);
  return std::chrono::nanoseconds(age > most_apart || age < -most_apart ? 0 : longest_tick);
}

void let_tick_pass(const fs::Origin& seen, const std::atomic<bool>& cancel) {
  wait(rest_of_tick(seen, wall_clock()), cancel);
}

}  // namespace efs::stage
