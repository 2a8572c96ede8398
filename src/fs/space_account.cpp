// SPDX-License-Identifier: BSD-3-Clause
#include "fs/space_account.hpp"

#include <algorithm>
#include <chrono>

namespace efs::fs {

// The kernel writes past us. But it needs time to fill a place up to the half, so until then the
// last look counts.
SpaceAccount::Place& SpaceAccount::look(unsigned number) {
  constexpr std::uint64_t fastest = 128;  // bytes per nanosecond
  Place& place = places_.at(number);
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  if (now < place.next_look.load(std::memory_order_relaxed)) {
    return place;
  }
  const Space space = backend_.at(number).space();
  place.available = space.available;
  place.capacity = space.capacity;
  const std::uint64_t above_half = space.available - std::min(space.available, space.capacity / 2);
  place.next_look = now + static_cast<std::int64_t>(above_half / fastest);
  return place;
}

SpaceAccount::Level SpaceAccount::level() {
  Level worst = Level::ample;
  for (unsigned number = 0; number < backend_.places(); ++number) {
    const Place& place = look(number);
    const std::uint64_t available = place.available, capacity = place.capacity;
    if (available < capacity / 4) {
      return Level::scarce;
    }
    if (available < capacity / 2) {
      worst = Level::half;
    }
  }
  return worst;
}

void SpaceAccount::owe(unsigned place, std::uint64_t bytes) {
  places_.at(place).owed.fetch_add(bytes, std::memory_order_relaxed);
}

// Never below zero: settle() may have come in between.
void SpaceAccount::pay(unsigned place, std::uint64_t bytes) {
  auto& owed = places_.at(place).owed;
  for (std::uint64_t now = owed; !owed.compare_exchange_weak(now, now - std::min(now, bytes));) {
  }
}

SpaceAccount::Debts SpaceAccount::debts() const {
  Debts all{};
  for (unsigned place = 0; place < most_places; ++place) {
    all.at(place) = places_.at(place).owed.load(std::memory_order_relaxed);
  }
  return all;
}

void SpaceAccount::pay(const Debts& debts) {
  for (unsigned place = 0; place < most_places; ++place) {
    pay(place, debts.at(place));
  }
}

bool SpaceAccount::owes(std::uint64_t part) {
  for (unsigned number = 0; number < backend_.places(); ++number) {
    const std::uint64_t owed = places_.at(number).owed.load(std::memory_order_relaxed);
    if (owed > 0 && owed >= look(number).available / part) {
      return true;
    }
  }
  return false;
}

void SpaceAccount::settle() {
  for (Place& place : places_) {
    place.owed = 0;
  }
}

}  // namespace efs::fs
