// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The available space of a store, read no more often than needed, and the pending space of removed
// files.

#include <array>
#include <atomic>
#include <cstdint>
#include <tuple>

#include "backends/backend.hpp"

namespace efs::fs {

/// A removal owes the space of its container until the journal is synced (R3) and the kernel has
/// closed the passthrough registration. Freeing the owed space costs a sync or a call of the
/// supervisor. So it is done when the debt is a noticeable part of the available space: a full
/// store pays some dozens of times, however many files are removed. Thread-safe, without a lock.
class SpaceAccount {
 public:
  explicit SpaceAccount(Backend& backend) : backend_(backend) {}

  /// ample: at least half of every backend is available. scarce: less than a quarter of one backend
  /// is available.
  enum class Level : std::uint8_t { ample, half, scarce };
  Level level();

  /// Available bytes of the backend with index `place`.
  std::uint64_t available(unsigned place) { return look(place).available; }

  /// Adds the bytes of a removed container that may still hold its space.
  void owe(unsigned place, std::uint64_t bytes);
  /// Subtracts bytes that are free now, or that were not owed after all.
  void pay(unsigned place, std::uint64_t bytes);
  /// The bytes that each backend is owed.
  using Debts = std::array<std::uint64_t, 8>;
  Debts debts() const;
  /// Subtracts debts that were read before the space was freed.
  void pay(const Debts& debts);
  /// True if a backend is owed at least its available space divided by `part`.
  bool owes(std::uint64_t part);
  static constexpr std::uint64_t noticeable = 64, smallest = 65536;
  /// Clears the debt. All space that is owed at the call must be free, or become free before the
  /// caller returns.
  void settle();

 private:
  static constexpr unsigned most_places = std::tuple_size_v<Debts>;  // as in VirtualDeviceOptions

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
