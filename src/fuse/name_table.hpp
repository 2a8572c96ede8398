// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Names of inodes, for traces. The file system itself only maps names to inodes.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/mutex.hpp"

namespace efs::fuse {

/// Adds names when the daemon replies to the kernel, and removes them when the kernel forgets the
/// inode. The table is therefore as large as the kernel's cache. An inode with several names has
/// the last used one. An inode whose name was removed keeps the name. Thread-safe.
class NameTable {
 public:
  /// A reply gave the kernel `ino` under this name: one more reference.
  void add(std::uint64_t ino, std::uint64_t parent, std::string_view name);
  void rename(std::uint64_t parent, std::string_view name, std::uint64_t new_parent,
              std::string_view new_name);
  /// The kernel drops `count` references.
  void forget(std::uint64_t ino, std::uint64_t count);

  /// "/a/b"; "/" for the root; an inode without a known name is "#" and its number.
  std::string path(std::uint64_t ino) const;
  std::string path(std::uint64_t parent, std::string_view name) const;
  std::size_t size() const;

 private:
  using Name = std::pair<std::uint64_t, std::string>;  // parent and name

  struct Known {
    Name name;
    std::uint64_t references = 0;
  };

  std::string path_locked(std::uint64_t ino) const EFS_REQUIRES(mutex_);

  mutable Mutex mutex_;  // rank 90
  std::unordered_map<std::uint64_t, Known> known_ EFS_GUARDED_BY(mutex_);
  std::map<Name, std::uint64_t> inodes_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::fuse
