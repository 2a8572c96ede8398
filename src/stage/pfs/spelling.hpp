// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Case-insensitive collisions: names that SMB, vfat or a directory with casefold treats as equal.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// A hash that is equal for two paths that differ in upper and lower case only (by the simple
/// mappings of Unicode). Other paths may collide by chance. Pure.
std::uint64_t case_folded(std::string_view path);

/// Finds the items that collide with an earlier item of the list, or with an already exported item
/// of `all`. Moves them to the end of the list and keeps the order otherwise. Returns for each
/// moved item the item that it collides with, in the same order.
std::vector<const fs::WalkItem*> move_twins_back(std::vector<const fs::WalkItem*>& items,
                                                 std::span<const fs::WalkItem> all);

/// The exact names in directories of the PFS. Thread-safe.
class SpelledNames {
 public:
  explicit SpelledNames(PfsIo& pfs) : pfs_(pfs) {}

  /// Call it if `name` exists in the open directory `directory`, whose path is `path`. True if the
  /// existing file's name differs from `name` in case only. Other equivalent spellings, such as
  /// composed letters, count as `name`. If the directory cannot be listed, every name does. Lists a
  /// directory once, and again if a name is missing.
  bool is_anothers(const std::string& path, PfsRef directory, const std::string& name);

 private:
  struct Names {
    std::unordered_set<std::string> exact;
    std::unordered_set<std::uint64_t> folded;
  };

  PfsIo& pfs_;
  Mutex mutex_;                                                           // rank 90 (leaf)
  std::unordered_map<std::string, Names> listed_ EFS_GUARDED_BY(mutex_);  // by path
  std::size_t names_ EFS_GUARDED_BY(mutex_) = 0;  // number of names in all of them
};

}  // namespace efs::stage
