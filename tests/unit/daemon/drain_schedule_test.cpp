// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/drain_schedule.hpp"

#include <catch2/catch_test_macros.hpp>

namespace efs::daemon {
namespace {

using namespace std::chrono_literals;
using Schedule = DrainSchedule;

constexpr Schedule::Duration on_close = 0s;
const Schedule::Time start{1000h};

// How long after `start` the file goes, if it is asked each half second; nullopt: not in an hour.
std::optional<Schedule::Duration> goes_after(Schedule& schedule, std::uint64_t ino) {
  for (Schedule::Duration after = 0s; after < 1h; after += 500ms) {
    if (const auto taken = schedule.take(start + after)) {
      return *taken == ino ? std::optional(after) : std::nullopt;
    }
  }
  return std::nullopt;
}

TEST_CASE("a file goes when it has not changed for a second", "[drain]") {
  Schedule schedule;
  CHECK_FALSE(schedule.next());
  schedule.changed(7, on_close, start);
  CHECK(schedule.next() == start + 1s);
  schedule.changed(7, on_close, start + 800ms);
  CHECK(schedule.next() == start + 1800ms);
  CHECK_FALSE(schedule.take(start + 1700ms));
  CHECK(schedule.size() == 1);
  CHECK(schedule.take(start + 1800ms) == 7);
  CHECK_FALSE(schedule.take(start + 1h));
  CHECK_FALSE(schedule.next());
  CHECK(schedule.size() == 1);
  schedule.home(7);
  CHECK(schedule.size() == 0);
}

TEST_CASE("a file that changes all the time goes after ten seconds", "[drain]") {
  Schedule schedule;
  for (Schedule::Duration after = 0s; after <= 30s; after += 500ms) {
    schedule.changed(7, on_close, start + after);
    if (const auto taken = schedule.take(start + after)) {
      CHECK(after == 10s);
      return;
    }
  }
  FAIL("it never goes");
}

TEST_CASE("with an interval a file goes that long after the first change that is not home",
          "[drain]") {
  Schedule schedule;
  schedule.changed(7, 10min, start);
  schedule.changed(7, 10min, start + 9min);
  CHECK(schedule.next() == start + 10min);
  CHECK(goes_after(schedule, 7) == 10min);
  // a change during the export: the interval begins with it
  schedule.changed(7, 10min, start + 11min);
  schedule.home(7);
  CHECK(schedule.next() == start + 21min);
  CHECK(schedule.size() == 1);
}

TEST_CASE("at the end of its interval, too, a file settles", "[drain]") {
  Schedule schedule;
  schedule.changed(7, 10s, start);
  schedule.changed(7, 10s, start + 9500ms);
  CHECK(schedule.next() == start + 10500ms);
  for (auto after = 10s; after < 40s; after += 1s) {
    schedule.changed(7, 10s, start + after);
  }
  CHECK(schedule.next() == start + 20s);
}

TEST_CASE("files go in the order of their times", "[drain]") {
  Schedule schedule;
  schedule.changed(1, 1min, start);
  schedule.changed(2, on_close, start + 1s);
  schedule.changed(3, on_close, start);
  CHECK(schedule.take(start + 2s) == 3);
  CHECK(schedule.take(start + 2s) == 2);
  CHECK_FALSE(schedule.take(start + 2s));
  CHECK(schedule.take(start + 1min) == 1);
}

TEST_CASE("a file that could not go waits longer each time", "[drain]") {
  Schedule schedule;
  schedule.changed(7, on_close, start);
  auto now = start + 1s;
  for (const auto wait : {2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    REQUIRE(schedule.take(now) == 7);
    schedule.again(7, now, Schedule::longest_wait_for_programs);
    CHECK(schedule.next() == now + wait);
    now += wait;
  }
  // its close makes it due, but it settles: a rename may follow
  schedule.changed(7, on_close, now);
  CHECK(schedule.next() == now + 1s);
}

TEST_CASE("a change during the export counts more than how the export went", "[drain]") {
  for (int outcome = 0; outcome < 3; ++outcome) {
    Schedule schedule;
    schedule.changed(7, on_close, start);
    REQUIRE(schedule.take(start + 1s) == 7);
    schedule.changed(7, on_close, start + 2s);
    const auto now = start + 3s;
    switch (outcome) {
      case 0: schedule.home(7); break;
      case 1: schedule.again(7, now, Schedule::longest_wait); break;
      default: schedule.later(7, now, 1min); break;
    }
    CHECK(schedule.next() == start + 3s);
    CHECK(schedule.size() == 1);
  }
}

TEST_CASE("a file that was not tried keeps its place", "[drain]") {
  Schedule schedule;
  schedule.changed(7, on_close, start);
  REQUIRE(schedule.take(start + 1s) == 7);
  schedule.later(7, start + 1s, 1s);
  REQUIRE(schedule.take(start + 2s) == 7);
  schedule.again(7, start + 2s, Schedule::longest_wait);
  CHECK(schedule.next() == start + 4s);  // the first wait
}

TEST_CASE("a file is forgotten with its changes", "[drain]") {
  Schedule schedule;
  schedule.changed(7, on_close, start);
  REQUIRE(schedule.take(start + 1s) == 7);
  CHECK_FALSE(schedule.waits(7));
  schedule.changed(7, on_close, start + 1s);
  schedule.changed(8, on_close, start + 2s);
  CHECK(schedule.waits(7));
  schedule.forget(7);
  CHECK((!schedule.waits(7) && schedule.size() == 1));
  CHECK(schedule.take(start + 1h) == 8);
  CHECK_FALSE(schedule.take(start + 1h));
}

TEST_CASE("after a failure of all, the pauses grow until one file goes", "[drain]") {
  Schedule schedule;
  schedule.changed(7, on_close, start);
  auto now = start + 1s;
  CHECK_FALSE(schedule.is_in_trouble());
  for (const auto pause : {5s, 10s, 20s, 40s, 80s, 160s, 320s, 600s, 600s}) {
    REQUIRE(schedule.take(now) == 7);
    schedule.later(7, now, 0s);
    schedule.failed(now);
    CHECK(schedule.is_in_trouble());
    CHECK(schedule.next() == now + pause);
    CHECK_FALSE(schedule.take(now + pause - 1ms));
    now += pause;
  }
  schedule.succeeded();
  CHECK_FALSE(schedule.is_in_trouble());
  CHECK(schedule.next() <= now);
  schedule.failed(now);
  CHECK(schedule.next() == now + 5s);
}

}  // namespace
}  // namespace efs::daemon
