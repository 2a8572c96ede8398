// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The text that describes one entry of the cache of inputs. Each entry has two files in the cache's
// directory: the container, whose name is a hash of the PFS path, and NAME.key with this text:
//
//   efs-cache-entry 1
//   device 64768 inode 12 size 2147483648 mtime 1700000000000000000 ctime 1700000000000000001 held
//   1700000000000000000 path 19 /pfs/me/run/input/a
//
// Numbers are decimal, times nanoseconds since 1970. `held` is the mtime of the container when it
// was added. The path comes last, with its length, as it may contain any byte. Two paths with the
// same hash share a name: the later one replaces the earlier, and a look-up compares the path in
// the text. The mtime of the text is the time of the last use.

#include <optional>
#include <string>
#include <string_view>

#include "fs/staging.hpp"

namespace efs::stage {

/// One version of a file on the PFS.
struct CacheKey {
  std::string path;  // absolute
  fs::Origin version;
  bool operator==(const CacheKey&) const = default;
};

struct CacheEntry {
  CacheKey key;
  Nanoseconds held = 0;
  bool operator==(const CacheEntry&) const = default;
};

inline constexpr std::string_view key_suffix = ".key";

/// The container's name in the cache's directory: 32 characters.
std::string entry_name(std::string_view path);
/// True if the name, without suffix, has the form of entry_name().
bool is_entry_name(std::string_view name);

std::string format_entry(const CacheEntry& entry);
/// nullopt if the text is not an entry, or has another version of the format.
std::optional<CacheEntry> parse_entry(const std::string& text);

}  // namespace efs::stage
