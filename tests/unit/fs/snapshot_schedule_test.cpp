// SPDX-License-Identifier: BSD-3-Clause
#include "fs/snapshot_schedule.hpp"

#include <catch2/catch_test_macros.hpp>

namespace efs::snapshot_schedule_test {

using fs::SnapshotSchedule;

constexpr std::uint64_t smallest = 1000;

TEST_CASE("snapshots: none is due before the beginning, nor of a small journal", "[fs]") {
  SnapshotSchedule schedule(smallest);
  CHECK_FALSE(schedule.is_due(UINT64_MAX));
  CHECK_FALSE(schedule.may_shorten(UINT64_MAX));
  schedule.begin();
  CHECK_FALSE(schedule.is_due(smallest - 1));
  CHECK(schedule.is_due(smallest));
  CHECK_FALSE(schedule.may_shorten(smallest - 1));
  CHECK(schedule.may_shorten(smallest));
}

TEST_CASE("snapshots: a takeover puts the first one off, until it is hastened", "[fs]") {
  SnapshotSchedule schedule(smallest);
  schedule.begin(5000);
  CHECK_FALSE(schedule.is_due(5999));
  CHECK(schedule.may_shorten(5999));
  schedule.hasten(20);
  CHECK_FALSE(schedule.is_due(smallest - 1));
  CHECK(schedule.is_due(smallest));
  schedule.begin(5000);
  schedule.hasten(2000);
  CHECK(schedule.is_due(2000));
  schedule.hasten(3000);  // does not put it off
  CHECK(schedule.is_due(2000));
}

TEST_CASE("snapshots: the next one depends on the outcome", "[fs]") {
  SnapshotSchedule schedule(smallest);
  schedule.begin();
  SECTION("made: twice the size") {
    CHECK_FALSE(schedule.tried(true, 4000));
    CHECK_FALSE(schedule.is_due(7999));
    CHECK(schedule.is_due(8000));
  }
  SECTION("made, and small") {
    CHECK_FALSE(schedule.tried(true, 10));
    CHECK_FALSE(schedule.is_due(smallest - 1));
    CHECK(schedule.is_due(smallest));
  }
  SECTION("failed: a quarter more") {
    CHECK(schedule.tried(false, 4000));
    CHECK_FALSE(schedule.is_due(4999));
    CHECK(schedule.is_due(5000));
  }
  SECTION("not tried: a quarter more") {
    schedule.put_off(4000);
    CHECK_FALSE(schedule.is_due(4999));
    CHECK(schedule.is_due(5000));
  }
}

TEST_CASE("snapshots: a series of failures is reported once, and its end", "[fs]") {
  SnapshotSchedule schedule(smallest);
  schedule.begin();
  CHECK(schedule.tried(false, 4000));
  CHECK_FALSE(schedule.tried(false, 5000));
  CHECK(schedule.tried(true, 100));
  CHECK_FALSE(schedule.tried(true, 100));
}

TEST_CASE("snapshots: few refused records try one, in a store with many inodes", "[fs]") {
  SnapshotSchedule schedule(smallest);
  CHECK_FALSE(schedule.is_refusing());
  int tries = 0;
  for (int i = 0; i < 100; ++i) {
    tries += schedule.refuse(640) ? 1 : 0;  // one of eleven
  }
  CHECK(tries == 10);
  CHECK(schedule.is_refusing());
  schedule.end_refusals();
  CHECK_FALSE(schedule.is_refusing());
  CHECK(schedule.refuse(640));
  CHECK(schedule.refuse(10));
}

}  // namespace efs::snapshot_schedule_test
