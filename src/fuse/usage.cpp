// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/usage.hpp"

#include <algorithm>

namespace efs::fuse {

// FNV-1a. Two names with one key count as one: then the second is missing from a report.
std::uint64_t MissedNames::key_of(std::uint64_t parent, std::string_view name) {
  constexpr std::uint64_t prime = 0x100000001b3;
  std::uint64_t key = (0xcbf29ce484222325 ^ parent) * prime;
  for (const char c : name) {
    key = (key ^ static_cast<unsigned char>(c)) * prime;
  }
  return key == 0 ? 1 : key;
}

void MissedNames::add(std::uint64_t parent, std::string_view name) {
  if (name.size() > longest) {
    return;
  }
  const std::uint64_t key = key_of(parent, name);
  Slot* free = nullptr;
  for (std::size_t i = 0; i < probes; ++i) {
    Slot& slot = slots_[(key + i) % most];
    const std::uint64_t there = std::atomic_ref(slot.key).load(std::memory_order_acquire);
    if (there == key) {
      return;
    }
    if (there == 0 && free == nullptr) {
      free = &slot;
    }
  }
  std::uint64_t nothing = 0;
  // if another thread takes the place first, this name is only counted
  if (free == nullptr || !std::atomic_ref(free->key).compare_exchange_strong(nothing, key)) {
    std::atomic_ref(not_kept_).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  free->parent = parent;
  free->length = static_cast<std::uint16_t>(name.size());
  std::ranges::copy(name, free->name);
  std::atomic_ref(free->ready).store(key, std::memory_order_release);
}

// A place whose name is not complete stays: its thread still writes it.
void MissedNames::remove(std::uint64_t parent, std::string_view name) {
  const std::uint64_t key = key_of(parent, name);
  for (std::size_t i = 0; i < probes; ++i) {
    Slot& slot = slots_[(key + i) % most];
    std::uint64_t ready = key;
    if (std::atomic_ref(slot.key).load(std::memory_order_relaxed) == key &&
        std::atomic_ref(slot.ready).compare_exchange_strong(ready, 0)) {
      std::atomic_ref(slot.key).store(0, std::memory_order_release);
      return;
    }
  }
}

std::vector<MissedNames::Name> MissedNames::all() const {
  std::vector<Name> names;
  for (const auto& slot : slots_) {
    const std::uint64_t ready = std::atomic_ref(slot.ready).load(std::memory_order_acquire);
    if (ready != 0 && ready == std::atomic_ref(slot.key).load(std::memory_order_relaxed)) {
      const std::size_t length = std::min<std::size_t>(slot.length, longest);
      names.push_back({.parent = slot.parent, .name = std::string(slot.name, length)});
    }
  }
  return names;
}

}  // namespace efs::fuse
