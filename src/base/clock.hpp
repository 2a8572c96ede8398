// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Time. File times are FileTime, with the range of struct timespec. Staging and reports count
// nanoseconds since 1970. Durations use the steady clock.

#include <sys/stat.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <ctime>
#include <limits>

namespace efs {

using Nanoseconds = std::int64_t;

/// Saturates: times before 1677 or after 2262 become the first or last representable time.
inline Nanoseconds to_ns(const timespec& t) {
  constexpr std::int64_t seconds_that_fit =
      std::numeric_limits<Nanoseconds>::max() / 1'000'000'000 - 1;
  const auto seconds = std::clamp<std::int64_t>(t.tv_sec, -seconds_that_fit, seconds_that_fit);
  return seconds * 1'000'000'000 + t.tv_nsec;
}

inline timespec to_timespec(Nanoseconds ns) {
  timespec t{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
             .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  if (t.tv_nsec < 0) {
    t.tv_nsec += 1'000'000'000;
    --t.tv_sec;
  }
  return t;
}

/// The time of a file: any second that a file system can store, also before 1970.
struct FileTime {
  std::int64_t seconds = 0;       // since 1970
  std::uint32_t nanoseconds = 0;  // below 1e9, counts forwards also before 1970
  constexpr FileTime() = default;

  constexpr FileTime(Nanoseconds ns) : seconds(ns / 1'000'000'000) {
    std::int64_t rest = ns % 1'000'000'000;
    if (rest < 0) {
      rest += 1'000'000'000;
      --seconds;
    }
    nanoseconds = static_cast<std::uint32_t>(rest);
  }

  constexpr FileTime(const timespec& t)
      : seconds(t.tv_sec), nanoseconds(static_cast<std::uint32_t>(t.tv_nsec)) {}

  auto operator<=>(const FileTime&) const = default;
};

inline timespec to_timespec(const FileTime& t) {
  return {.tv_sec = static_cast<time_t>(t.seconds), .tv_nsec = static_cast<long>(t.nanoseconds)};
}

/// The current time of the fine clock. For reports, and for comparison with another machine's
/// clock. FileClock provides the time stamps of files.
inline FileTime wall_time() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return t;
}

/// Sets a container's time to the current time of the kernel's stamping clock (UTIME_NOW of
/// utimensat(2)). No later stamp of a read or write is earlier. The kernel stamps by a coarse
/// clock, so a time from wall_time() may be later than the kernel's next stamps.
inline constexpr FileTime stamp_now = timespec{.tv_sec = 0, .tv_nsec = UTIME_NOW};

/// The current time, for reports.
inline Nanoseconds wall_clock() {
  return to_ns(to_timespec(wall_time()));
}

/// Selects the accesses that update atime. relative (relatime): an access updates atime if atime
/// does not yet show a read since the last change, and once a day.
enum class AccessTimes : std::uint8_t { relative, kept, strict };

/// Returns whether an access updates atime.
inline bool atime_is_due(AccessTimes policy, const FileTime& atime, const FileTime& mtime,
                         const FileTime& ctime) {
  if (policy != AccessTimes::relative) {
    return policy == AccessTimes::strict;
  }
  return atime <= mtime || atime <= ctime || atime.seconds + 86400 <= wall_time().seconds;
}

}  // namespace efs
