// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The first bytes of a device: its owner, and where metadata and data are. backends/README.md has
// the layout.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "backends/devdax/device_range.hpp"
#include "backends/devdax/extent_allocator.hpp"
#include "base/device_memory.hpp"
#include "base/result.hpp"

namespace efs::devdax {

inline constexpr std::uint32_t superblock_version = 1;
/// The two copies.
inline constexpr std::array<std::uint64_t, 2> superblock_at{0, 64U << 10U};
/// The metadata range begins here.
inline constexpr std::uint64_t metadata_begin = 128U << 10U;

struct Superblock {
  std::uint64_t generation = 0;  // increases with every write
  std::array<std::uint8_t, 16> uuid{};
  uid_t owner = 0;
  // The data range may have bytes of other users: the backend zeroes extents before their first
  // use.
  bool zero_before_use = false;
  std::uint64_t size = 0;  // of the device when it was formatted, bytes
  DeviceRange metadata;
  BlockLayout data;

  bool operator==(const Superblock&) const = default;
};

/// The content of a device, as far as its superblocks tell.
enum class Content : std::uint8_t {
  empty,            // the first MiB is zero
  own,              // a superblock of this user
  another_users,    // a superblock of another user
  foreign,          // other bytes, of a file system for example
  damaged,          // both superblocks are, or they contradict the device
  another_version,  // a superblock of a later efs
};

struct Found {
  Content content = Content::empty;
  std::optional<Superblock> superblock;  // own, another_users
  // own, another_users: a format ended before it had cleared the metadata; format() goes on
  bool unfinished = false;
  std::string text;  // for people: which file system, or what contradicts; "" if there is no more
};

/// Reads the superblocks and changes nothing. `owner` is the user that wants the device.
Found read_superblock(DeviceMemory& device, uid_t owner);

/// OK if the device may be formatted for `owner`. Only an empty device may be without `force`
/// (--format). The text names the device, its content and the option. EEXIST: the user's own store,
/// EACCES: another user's, EUCLEAN: another content.
Status may_format(const Found& found, const std::string& path, bool force);

struct FormatOptions {
  uid_t owner = 0;
  std::uint64_t block = BlockLayout::default_block;
  std::uint64_t metadata = 64U << 20U;  // bytes for the journal; less on a small device
  std::uint64_t align = 4096;           // of the device: both ranges begin at a multiple
};

/// Writes a new superblock over `found` and zeroes the metadata range. Until the first superblock
/// is durable, the former content is whole: a crash leaves the old one or the new one. The
/// data range is not zeroed, but marked (zero_before_use) unless it has bytes of this user alone.
/// EINVAL: the block size; ENOSPC: the device has no room for a block.
Result<Superblock> format(DeviceMemory& device, const Found& found, const FormatOptions& options);

/// Zeroes the metadata range of an unfinished format, and writes that it is finished.
Result<Superblock> finish_format(DeviceMemory& device, const Superblock& superblock);

}  // namespace efs::devdax
