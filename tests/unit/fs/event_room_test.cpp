// SPDX-License-Identifier: BSD-3-Clause
#include "fs/event_room.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>
#include <utility>

#include "store/format.hpp"
#include "support/scarce_medium.hpp"
#include "support/temp.hpp"

namespace efs::event_room_test {
namespace {

using fs::EventRoom;
using fs::MissedEvents;

constexpr std::uint64_t mebibyte = 1U << 20U;

struct RoomScene {
  /// The journal has at most this room for records and reserves.
  void limit(std::uint64_t bytes) { shortage.room = bytes; }

  const test::TempDirectory directory{"/dev/shm"};
  const UniqueFd metadata = directory.open();
  test::Scarcity shortage;
  store::Journal journal = std::move(*store::Journal::create(
      std::make_shared<test::ScarceMedium>(store::directory_medium(metadata.get()), shortage),
      "journal"));
  EventRoom room;
};

}  // namespace

TEST_CASE("event room: a large store has more", "[fs][ledger][room]") {
  CHECK(EventRoom::wanted_for(0) == mebibyte / 4);
  CHECK(EventRoom::wanted_for(4096 * mebibyte) == mebibyte);
  CHECK(EventRoom::wanted_for(UINT64_MAX) == 16 * mebibyte);
}

TEST_CASE("event room: is a part of the journal's reserve", "[fs][ledger][room]") {
  RoomScene scene;
  scene.room.reserve(scene.journal, 1000, mebibyte);
  CHECK(scene.room.bytes() == mebibyte + EventRoom::of_start);
  CHECK(scene.journal.reserve() == 1000 + scene.room.bytes());
  CHECK_FALSE(scene.room.is_short());
}

TEST_CASE("event room: events leave the room of the next start", "[fs][ledger][room]") {
  RoomScene scene;
  CHECK_FALSE(scene.room.has(1));
  scene.room.reserve(scene.journal, 0, mebibyte);
  CHECK(scene.room.has(mebibyte));
  CHECK_FALSE(scene.room.has(mebibyte + 1));
  scene.room.use(mebibyte - 100);
  CHECK(scene.room.has(100));
  CHECK_FALSE(scene.room.has(101));
  CHECK(scene.room.bytes() == EventRoom::of_start + 100);
}

TEST_CASE("event room: is smaller where the journal has less", "[fs][ledger][room]") {
  RoomScene scene;
  const std::uint64_t wanted = 16 * mebibyte;
  scene.limit(store::journal_chunk + wanted / 2);
  scene.room.reserve(scene.journal, 1000, wanted);
  CHECK(scene.room.bytes() >= EventRoom::of_start);
  CHECK(scene.room.bytes() < wanted);
  CHECK(scene.journal.reserve() == 1000 + scene.room.bytes());
  CHECK(scene.room.is_short());
}

TEST_CASE("event room: what events used is reserved again when there is room",
          "[fs][ledger][room]") {
  RoomScene scene;
  const std::uint64_t wanted = 16 * mebibyte, all = wanted + EventRoom::of_start;
  scene.room.reserve(scene.journal, 0, wanted);
  scene.room.use(1000);
  CHECK(scene.room.is_short());
  SECTION("and is not where there is none") {
    scene.limit(0);
    scene.room.restore(scene.journal, wanted);
    CHECK(scene.room.bytes() == all - 1000);
    CHECK(scene.journal.reserve() == wanted + all - 1000);
    CHECK(scene.room.is_short());
    scene.limit(UINT64_MAX);
  }
  scene.room.restore(scene.journal, wanted);
  CHECK(scene.room.bytes() == all);
  CHECK(scene.journal.reserve() == wanted + all);
  CHECK_FALSE(scene.room.is_short());
}

TEST_CASE("missed events: the journal has one record of the earliest", "[fs][ledger]") {
  MissedEvents missed;
  CHECK_FALSE(missed.any());
  CHECK_FALSE(missed.is_recorded(5));
  CHECK(missed.add(5) == 5);
  CHECK(missed.any());
  CHECK_FALSE(missed.is_recorded(5));  // the journal was full
  missed.set_recorded();
  CHECK(missed.is_recorded(5));
  CHECK(missed.is_recorded(7));
  CHECK_FALSE(missed.is_recorded(4));
  CHECK(missed.add(7) == 5);
  CHECK(missed.add(4) == 4);
  CHECK_FALSE(missed.is_recorded(4));
  missed.set_recorded();
  missed.clear();
  CHECK_FALSE(missed.any());
  CHECK_FALSE(missed.is_recorded(7));
}

}  // namespace efs::event_room_test
