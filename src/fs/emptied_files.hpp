// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files that lost their content in a power loss, and that a recovery made empty. A list beside the
// journal keeps them over takeovers and later starts.

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "store/medium.hpp"

namespace efs::fs {

class EmptiedFiles {
 public:
  /// Reads the list of `medium`. Returns an empty list if there is none. Skips lines that do not
  /// parse. Fails if the list cannot be read.
  static Result<EmptiedFiles> read(store::Medium& medium);

  /// Adds `inos`, and drops entries whose inode no longer exists according to `exists`. On return
  /// the list survives power loss. Call before the containers are made, set the mtime of each
  /// container to `mark`, then call finish(). After an error the list has the new entries in memory
  /// only.
  Status add(store::Medium& medium, std::span<const std::uint64_t> inos, FileTime mark,
             const std::function<bool(std::uint64_t ino)>& exists);

  /// All containers of add() have the mark, durably. Durable on return.
  Status finish(store::Medium& medium);

  /// The files of an add() without its finish(): a recovery died in between, and no program has run
  /// since. Their containers may lack the mark.
  std::vector<std::uint64_t> unfinished() const;
  /// The mark of unfinished().
  FileTime unfinished_mark() const;

  std::vector<std::uint64_t> inodes() const;

  /// True if a recovery made the file empty and no program has written, truncated or touched it
  /// since.
  bool contains(std::uint64_t ino, const struct stat& attributes) const;

 private:
  Status write(store::Medium& medium) const;

  std::map<std::uint64_t, std::int64_t> marks_;  // mtime, whole seconds
  std::int64_t unfinished_ = 0;                  // the mark of an add() without finish(); 0: none
};

}  // namespace efs::fs
