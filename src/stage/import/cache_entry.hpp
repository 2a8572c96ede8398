#pragma once
// What the cache of inputs says of one of its files: which content it is. Of each there are two
// names in the cache's directory: the container, which is named by a hash of the PFS path, and
// beside it, as NAME.key, this text:
//
//   efs-cache-entry 1
//   device 64768 inode 12 size 2147483648 mtime 1700000000000000000 ctime 1700000000000000001 held
//   1700000000000000000 path 19 /pfs/me/run/input/a
//
// Numbers are decimal, times nanoseconds since 1970. `held` is the container's own mtime when it
// was put there. The path comes last, with its length, as it may hold any byte. Two paths of one
// hash share a name: the later one takes it, and no content is given for another path than the text
// has. The text's own mtime is when the file was last used.

#include <optional>
#include <string>
#include <string_view>

#include "fs/staging.hpp"

namespace efs::stage {

/// A file of the PFS, and which version of it.
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

/// Of the container in the cache's directory: 32 characters.
std::string entry_name(std::string_view path);
/// Whether a name in the directory is one of those, without the suffix.
bool is_entry_name(std::string_view name);

std::string format_entry(const CacheEntry& entry);
/// nullopt: no such text, or of another version of the format.
std::optional<CacheEntry> parse_entry(const std::string& text);

}  // namespace efs::stage
