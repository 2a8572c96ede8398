// SPDX-License-Identifier: BSD-3-Clause
#include "base/clock.hpp"

#include <catch2/catch_test_macros.hpp>

using efs::FileTime;

TEST_CASE("a file time keeps every second that struct timespec has") {
  for (const std::int64_t seconds :
       {std::numeric_limits<std::int64_t>::min(), std::int64_t{-62135596800}, std::int64_t{-1},
        std::int64_t{0}, std::int64_t{253402300799}, std::numeric_limits<std::int64_t>::max()}) {
    for (const long nanoseconds : {0L, 1L, 999999999L}) {
      const timespec back =
          efs::to_timespec(FileTime(timespec{.tv_sec = seconds, .tv_nsec = nanoseconds}));
      CHECK(back.tv_sec == seconds);
      CHECK(back.tv_nsec == nanoseconds);
    }
  }
}

TEST_CASE("file times are in the order of time, and nanoseconds become one before 1970 too") {
  CHECK(FileTime(efs::Nanoseconds{-1}) < FileTime(efs::Nanoseconds{0}));
  CHECK(FileTime(efs::Nanoseconds{-1}) == FileTime(timespec{.tv_sec = -1, .tv_nsec = 999999999}));
  CHECK(FileTime(efs::Nanoseconds{-1'000'000'000}) ==
        FileTime(timespec{.tv_sec = -1, .tv_nsec = 0}));
  CHECK(FileTime(efs::Nanoseconds{1'500'000'000}) ==
        FileTime(timespec{.tv_sec = 1, .tv_nsec = 500'000'000}));
  CHECK(FileTime(timespec{.tv_sec = -1, .tv_nsec = 999999999}) >
        FileTime(timespec{.tv_sec = -1, .tv_nsec = 5}));
}

TEST_CASE("atime is due after a change and after a day") {
  const FileTime now = efs::wall_time();
  const auto ago = [&](std::int64_t seconds) {
    FileTime t = now;
    t.seconds -= seconds;
    return t;
  };
  CHECK(efs::atime_is_due(efs::AccessTimes::relative, ago(10), ago(5), ago(20)));
  CHECK(efs::atime_is_due(efs::AccessTimes::relative, ago(10), ago(20), ago(5)));
  CHECK(efs::atime_is_due(efs::AccessTimes::relative, ago(10), ago(10), ago(20)));
  CHECK_FALSE(efs::atime_is_due(efs::AccessTimes::relative, ago(10), ago(20), ago(20)));
  CHECK(efs::atime_is_due(efs::AccessTimes::relative, ago(86500), ago(90000), ago(90000)));
  CHECK(efs::atime_is_due(efs::AccessTimes::strict, ago(10), ago(20), ago(20)));
  CHECK_FALSE(efs::atime_is_due(efs::AccessTimes::kept, ago(10), ago(5), ago(5)));
}
