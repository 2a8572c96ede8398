// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The room of the ledger's events in a journal that is full, and the events that found none.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.hpp"
#include "store/journal.hpp"

namespace efs::fs {

/// A part of the journal's reserve, which has that of removals beside it. Not thread-safe.
class EventRoom {
 public:
  // bytes of the room that events leave to the records of the next start
  static constexpr std::uint64_t of_start = 16u << 10;

  /// The bytes to reserve for a store of this capacity.
  static std::uint64_t wanted_for(std::uint64_t capacity);

  /// Reserves `wanted` bytes for events beside the `removals`, or less if the journal has less: a
  /// reserve that it does not have would make it refuse all other records.
  void reserve(store::Journal& journal, std::uint64_t removals, std::uint64_t wanted);

  /// True if restore() has something to do.
  bool is_short() const { return bytes_ < wanted_; }

  /// Reserves again what events have used, if the journal has it.
  void restore(store::Journal& journal, std::uint64_t removals);

  /// True if an event may use so much of the room.
  bool has(std::uint64_t bytes) const { return bytes_ >= bytes + of_start; }

  /// An event has used so much of the room. Requires has().
  void use(std::uint64_t bytes) { bytes_ -= bytes; }

  /// The room, with that of the next start.
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_ = 0;
  std::uint64_t wanted_ = 0;
};

/// The events of this process that the journal does not have. Not thread-safe.
class MissedEvents {
 public:
  /// True if the journal says that it lacks the events from this moment on.
  bool is_recorded(Nanoseconds since) const { return since_ && *since_ <= since && recorded_; }

  /// An event of this moment is missing. Returns since when events are missing; the journal does
  /// not say so yet.
  Nanoseconds add(Nanoseconds since) {
    recorded_ = false;
    return since_.emplace(std::min(since_.value_or(since), since));
  }

  /// The journal says so, or another mark of the store does.
  void set_recorded() { recorded_ = true; }

  bool any() const { return since_.has_value(); }

  /// A new journal has all events.
  void clear() { since_.reset(); }

 private:
  std::optional<Nanoseconds> since_;
  bool recorded_ = false;
};

}  // namespace efs::fs
