// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The files that this process has published in a version, with the checksums of those that it wrote
// in full. A process that leaves a version passes them to the process that commits it.

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace efs::objects {

/// A file in the state in which its checksum was computed.
struct Written {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::uint64_t modified = 0;  // nanoseconds
  std::uint64_t changed = 0;
  std::uint64_t checksum = 0;

  static Written of(const struct stat& status, std::uint64_t checksum);
  bool operator==(const Written&) const = default;
};

/// Thread-safe.
class WrittenFiles {
 public:
  /// Records a file that was published; NULL: its checksum is not known.
  void set(std::string_view name, const std::optional<Written>& written);
  /// Records that a file was removed.
  void remove(std::string_view name);
  bool has(std::string_view name);
  /// The names of all files that no process has removed, in byte order.
  std::vector<std::string> names();
  /// Returns the checksum of a file unless it is unknown or the file has changed since.
  std::optional<std::uint64_t> checksum_of(std::string_view name, int fd);

  /// The files with a known checksum and those that were removed, a line for each.
  std::string text();
  /// Adds the text of another process; ignores it from the first line on that is not valid.
  void add(std::string_view text);

 private:
  std::mutex mutex_;
  std::map<std::string, std::optional<Written>, std::less<>> files_;  // guarded by mutex_
  std::set<std::string, std::less<>> removed_;                        // likewise
};

}  // namespace efs::objects
