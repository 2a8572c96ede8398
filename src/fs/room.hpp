// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The room of a store, asked for no more often than needed, and the space that removals still owe
// it.

#include <array>
#include <atomic>
#include <cstdint>

#include "backends/backend.hpp"

namespace efs::fs {

/// A removal owes the space of its container until the journal is synced (R3) and until the kernel
/// closes the passthrough registration. Freeing what is owed costs a sync or a question to the
/// supervisor. So it is done when the debt is a noticeable part of what is available: a store that
/// was full pays some dozens of times, however many files are removed. Thread-safe, without a lock.
class Room {
 public:
  explicit Room(Backend& backend) : backend_(backend) {}

  /// ample: at least half of every place is available. scarce: less than a quarter of one is.
  enum class Level : std::uint8_t { ample, half, scarce };
  Level level();

  /// Bytes that are available in a place.
  std::uint64_t available(unsigned place) { return look(place).available; }

  /// Bytes of a container that was removed, and may hold its space yet.
  void owe(unsigned place, std::uint64_t bytes);
  /// What was owed for a container is free, or was not owed after all.
  void pay(unsigned place, std::uint64_t bytes);
  /// Is a place owed this part of what it has available, or more?
  bool owes(std::uint64_t part);
  static constexpr std::uint64_t noticeable = 64, smallest = 65536;
  /// Everything that was owed when this was called is free, or will be before the caller has
  /// returned.
  void settle();

 private:
  static constexpr unsigned most_places = 8;  // as in VirtualDeviceOptions

  struct Place {
    std::atomic<std::uint64_t> owed{0};       // bytes
    std::atomic<std::uint64_t> available{0};  // bytes, at the last look
    std::atomic<std::uint64_t> capacity{0};   // bytes
    std::atomic<std::int64_t> next_look{0};   // steady clock, nanoseconds
  };

  Place& look(unsigned place);

  Backend& backend_;
  std::array<Place, most_places> places_;
};

}  // namespace efs::fs
