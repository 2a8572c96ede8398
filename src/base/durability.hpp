// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The durability class of a store. probe_durability() is the only place that decides it.

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/shared_mapping.hpp"

namespace efs {

/// Which failures the stored data survives, after libpmem's granularity.
enum class Durability : std::uint8_t {
  volatile_memory,  // tmpfs: lasts as long as the machine runs
  page,             // page cache: survives the death of efs at once, and power loss after the next
                    // sync
  cache_line,       // persistent memory: a drained store survives power loss
};

/// "memory", "page cache", "persistent memory". Interfaces contain these names.
const char* name_of(Durability durability);

/// The class with this name.
std::optional<Durability> durability_named(std::string_view name);

/// Text for people: how stored data become durable.
const char* meaning_of(Durability durability);

/// The answers of a directory's file system.
struct DurabilityProbe {
  bool memory = false;           // a tmpfs or a ramfs
  bool maps_persistent = false;  // a mapping with MAP_SYNC succeeds: DAX on persistent memory
  // the errno if no file could be created and mapped; maps_persistent is false then
  int problem = 0;

  Durability durability() const;
};

/// Asks the file system of a directory (a descriptor) by a file without a name, which the caller
/// must be able to create there. Mount options prove nothing: XFS accepts some without an effect.
/// The answer is constant for a directory. It leaves nothing behind.
DurabilityProbe probe_durability(int directory, IsPmem is_pmem);

}  // namespace efs
