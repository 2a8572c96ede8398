// SPDX-License-Identifier: BSD-3-Clause
#include "record/events.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <random>

namespace efs::record {

namespace {

// A recording as processes leave it.
class Memory {
 public:
  Memory() : bytes_(sizeof(efs_recording) + 4096) { head()->used = sizeof(efs_recording); }

  efs_recording* head() { return reinterpret_cast<efs_recording*>(bytes_.data()); }

  efs_event* add(efs_event_kind kind, std::uint64_t order, const std::string& first,
                 const std::string& second = {}) {
    auto* event = reinterpret_cast<efs_event*>(bytes_.data() + head()->used);
    const std::size_t names = first.size() + second.size();
    event->length = static_cast<std::uint32_t>((sizeof *event + names + 7) / 8 * 8);
    event->kind = static_cast<std::uint8_t>(kind);
    event->order = order;
    event->size = 7;
    event->first_length = static_cast<std::uint16_t>(first.size());
    event->second_length = static_cast<std::uint16_t>(second.size());
    std::memcpy(event + 1, (first + second).data(), names);
    event->done = 1;
    head()->used += event->length;
    return event;
  }

  // Space that a killed process reserved.
  void gap(std::size_t bytes) { head()->used += bytes; }

  std::vector<std::byte>& bytes() { return bytes_; }

  Recording read() { return read_recording(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

TEST_CASE("record: events are read in their order", "[record]") {
  Memory memory;
  memory.head()->processes = 3;
  memory.head()->lost = 2;
  memory.add(EFS_EVENT_READ, 5, "/b");
  memory.add(EFS_EVENT_RENAME, 2, "/old", "/new name");
  const Recording recording = memory.read();
  REQUIRE(recording.events.size() == 2);
  CHECK(recording.events[0].kind == EFS_EVENT_RENAME);
  CHECK(recording.events[0].path == "/old");
  CHECK(recording.events[0].second == "/new name");
  CHECK(recording.events[0].size == 7);
  CHECK(recording.events[1].path == "/b");
  CHECK(recording.processes == 3);
  CHECK(recording.lost == 2);
}

TEST_CASE("record: a killed process hides no event of another one", "[record]") {
  Memory memory;
  memory.add(EFS_EVENT_READ, 0, "/a");
  memory.gap(48);
  memory.add(EFS_EVENT_READ, 1, "/unfinished")->done = 0;
  memory.add(EFS_EVENT_READ, 2, "/b");
  const Recording recording = memory.read();
  REQUIRE(recording.events.size() == 2);
  CHECK(recording.events[1].path == "/b");
}

TEST_CASE("record: a full recording ends at its capacity", "[record]") {
  Memory memory;
  memory.add(EFS_EVENT_READ, 0, "/a");
  memory.head()->used = 1u << 30;
  CHECK(memory.read().events.size() == 1);
  memory.bytes().resize(100);
  CHECK(memory.read().events.empty());
}

TEST_CASE("record: damaged bytes are no danger", "[record]") {
  std::mt19937 random(1);  // NOLINT: the same bytes each time
  for (int round = 0; round < 200; ++round) {
    Memory memory;
    for (int n = 0; n < 20; ++n) {
      memory.add(EFS_EVENT_RENAME, static_cast<std::uint64_t>(n), "/some/name", "/another");
    }
    for (int n = 0; n < 10; ++n) {
      const std::size_t at = sizeof(efs_recording) + random() % 1000;
      memory.bytes()[at] = static_cast<std::byte>(random());
    }
    CHECK(memory.read().events.size() <= 20);
  }
}

}  // namespace efs::record
