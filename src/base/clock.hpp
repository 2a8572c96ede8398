#pragma once
// Time. The file system keeps file times as struct timespec has them (FileTime); staging and
// reports count nanoseconds since 1970; durations are steady.

#include <sys/stat.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <ctime>
#include <limits>

namespace efs {

using Nanoseconds = std::int64_t;

/// Saturates: what lies before 1677 or after 2262 becomes the first or last moment that fits.
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

/// A time of a file: every second that a file system can hold, before 1970 too.
struct FileTime {
  std::int64_t seconds = 0;       // since 1970
  std::uint32_t nanoseconds = 0;  // below 1e9, forwards also before 1970
  constexpr FileTime() = default;

  constexpr FileTime(Nanoseconds ns) : seconds(ns / 1'000'000'000), nanoseconds(0) {
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

/// Now, by the fine clock: for reports, and for what is compared with the clock of another machine.
/// Time stamps of files come from FileClock.
inline FileTime wall_time() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return t;
}

/// As a time that a container is to get: now, by the clock that stamps reads and writes, of which
/// no later one is earlier (UTIME_NOW of utimensat(2)). The kernel stamps by a coarse clock: one
/// that we have read may be later than its next stamps.
inline constexpr FileTime stamp_now = timespec{.tv_sec = 0, .tv_nsec = UTIME_NOW};

/// Now, for reports.
inline Nanoseconds wall_clock() {
  return to_ns(to_timespec(wall_time()));
}

/// Which accesses move atime. relative (relatime): one behind which the time says "read since the
/// last change", and one a day.
enum class AccessTimes : std::uint8_t { relative, kept, strict };

/// Does an access move atime?
inline bool atime_is_due(AccessTimes policy, const FileTime& atime, const FileTime& mtime,
                         const FileTime& ctime) {
  if (policy != AccessTimes::relative) {
    return policy == AccessTimes::strict;
  }
  return atime <= mtime || atime <= ctime || atime.seconds + 86400 <= wall_time().seconds;
}

}  // namespace efs
