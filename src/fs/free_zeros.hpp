// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Zeros that take space, freed after the last writer has closed their file.

#include <cstdint>
#include <unordered_set>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "fs/quiet_files.hpp"
#include "fs/removals.hpp"
#include "fs/space_account.hpp"

namespace efs::fs {

/// Thread-safe. Call it with no lock held.
class FreeZeros {
 public:
  /// Borrows all of them.
  FreeZeros(QuietFiles& files, Backend& backend, SpaceAccount& space, Removals& removals)
      : files_(files), backend_(backend), space_(space), removals_(removals) {}

  /// Call it when the last writer has closed the file. Frees the file's zero pages if they take
  /// space, or leaves the file for free_left(). Does not throw.
  void closed(std::uint64_t ino);
  /// Leaves the file for free_left(). Throws std::bad_alloc.
  void leave(std::uint64_t ino);
  /// Tries again with the files that were left, because a program may write to them or time was
  /// short. Returns true if space was freed. Throws std::bad_alloc.
  bool free_left();

 private:
  struct Outcome {
    bool freed = false;  // some
    bool left = false;   // there may be more zero pages
  };

  /// `tries`: as for prove_no_writer().
  Outcome free(std::uint64_t ino, int tries);
  /// Frees all zero pages. `proof`: the result of prove_no_writer().
  Outcome punch_all(std::uint64_t ino, std::uint64_t proof);
  /// True if few files are left, and this one is among them.
  bool is_one_of_few_left(std::uint64_t ino) const;

  QuietFiles& files_;
  Backend& backend_;
  SpaceAccount& space_;
  Removals& removals_;
  mutable Mutex mutex_;  // rank 90 (leaf)
  std::unordered_set<std::uint64_t> left_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::fs
