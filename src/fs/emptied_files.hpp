// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files whose content power loss took, and which a recovery made empty. A list beside the journal
// carries them over takeovers and later starts.

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "store/medium.hpp"

namespace efs::fs {

class EmptiedFiles {
 public:
  /// The list of `medium`; empty where there is none. Lines that do not parse are skipped.
  static EmptiedFiles read(store::Medium& medium);

  /// Adds `inos`, and drops entries of which `exists` says that the inode is gone. The list
  /// survives power loss when this returns. Call it before the containers are made, and give each
  /// of them `mark` as its mtime. In case of an error the list has the new entries in memory only.
  Status add(store::Medium& medium, std::span<const std::uint64_t> inos, FileTime mark,
             const std::function<bool(std::uint64_t ino)>& exists);

  /// The file was emptied, and no program has written, truncated or touched it since.
  bool contains(std::uint64_t ino, const struct stat& attributes) const;

 private:
  Status write(store::Medium& medium) const;

  std::map<std::uint64_t, std::int64_t> marks_;  // mtime, whole seconds
};

}  // namespace efs::fs
