#pragma once
// Time. File times are wall-clock nanoseconds since 1970 (struct timespec at the doors); durations are steady.

#include <chrono>
#include <compare>
#include <cstdint>
#include <ctime>

namespace efs {

using Nanoseconds = std::int64_t;

inline Nanoseconds to_ns(const timespec& t) { return static_cast<Nanoseconds>(t.tv_sec) * 1'000'000'000 + t.tv_nsec; }
inline timespec to_timespec(Nanoseconds ns) {
  timespec t{.tv_sec = static_cast<time_t>(ns / 1'000'000'000), .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  if (t.tv_nsec < 0) {
    t.tv_nsec += 1'000'000'000;
    --t.tv_sec;
  }
  return t;
}

/// The time a file system stamps: the kernel's coarse clock, so that our stamps and those that the kernel puts
/// on containers come from one clock and never run backwards against one another.
inline Nanoseconds file_time_now() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME_COARSE, &t);
  return to_ns(t);
}

}  // namespace efs
