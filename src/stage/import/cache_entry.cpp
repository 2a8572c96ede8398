// SPDX-License-Identifier: BSD-3-Clause
#include "stage/import/cache_entry.hpp"

#include <cinttypes>
#include <cstdio>

#include "base/checksum.hpp"

namespace efs::stage {

std::string entry_name(std::string_view path) {
  return name_digest(path);
}

bool is_entry_name(std::string_view name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string format_entry(const CacheEntry& entry) {
  const auto& [device, inode, size, mtime, ctime] = entry.key.version;
  const auto number = [](auto value) {
    return std::to_string(value);
  };
  return "efs-cache-entry 1\ndevice " + number(device) + " inode " + number(inode) + " size " +
         number(size) + " mtime " + number(mtime) + " ctime " + number(ctime) + " held " +
         number(entry.held) + "\npath " + number(entry.key.path.size()) + "\n" + entry.key.path +
         "\n";
}

std::optional<CacheEntry> parse_entry(const std::string& text) {
  CacheEntry entry;
  fs::Origin& v = entry.key.version;
  std::uint64_t length = 0;
  int begin = 0;
  const int fields =
      std::sscanf(text.c_str(),
                  "efs-cache-entry 1\ndevice %" SCNu64 " inode %" SCNu64 " size %" SCNu64
                  " mtime %" SCNd64 " ctime %" SCNd64 " held %" SCNd64 "\npath %" SCNu64 "%n",
                  &v.device, &v.inode, &v.size, &v.mtime, &v.ctime, &entry.held, &length, &begin);
  const auto path = static_cast<std::size_t>(begin) + 1;  // after the end of the line
  if (fields != 7 || text.size() < path || length != text.size() - path - 1 ||
      text[path - 1] != '\n' || text.back() != '\n') {
    return std::nullopt;
  }
  entry.key.path = text.substr(path, length);
  return entry;
}

}  // namespace efs::stage
