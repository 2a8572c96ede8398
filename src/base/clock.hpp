#pragma once
// Time. File times are wall-clock nanoseconds since 1970 (struct timespec at the doors); durations are steady.

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <limits>

namespace efs {

using Nanoseconds = std::int64_t;

/// Saturates: what lies before 1677 or after 2262 becomes the first or last moment that fits.
inline Nanoseconds to_ns(const timespec& t) {
  constexpr std::int64_t seconds_that_fit = std::numeric_limits<Nanoseconds>::max() / 1'000'000'000 - 1;
  const auto seconds = std::clamp<std::int64_t>(t.tv_sec, -seconds_that_fit, seconds_that_fit);
  return seconds * 1'000'000'000 + t.tv_nsec;
}
inline timespec to_timespec(Nanoseconds ns) {
  timespec t{.tv_sec = static_cast<time_t>(ns / 1'000'000'000), .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  if (t.tv_nsec < 0) {
    t.tv_nsec += 1'000'000'000;
    --t.tv_sec;
  }
  return t;
}

/// The time a file system stamps. The fine clock: containers bear the kernel's multigrain stamps (6.13), which are
/// fine once somebody has looked, and a coarse stamp of ours could seem older than what was there.
inline Nanoseconds file_time_now() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return to_ns(t);
}

}  // namespace efs
