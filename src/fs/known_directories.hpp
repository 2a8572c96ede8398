// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Directories found by path, in time that does not grow with their depth where the callers ask for
// neighbours one after the other.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/mutex.hpp"
#include "base/result.hpp"

namespace efs::fs {

class Namespace;
struct Inode;

/// Can `name` be one between the slashes of a path below the root?
bool is_component(std::string_view name);

/// Remembers the last directories that deep paths led to. The next search starts from the nearest
/// of them, up and down again, or from the root. A path of few components is searched from the
/// root. Thread-safe among readers of one namespace, which stays the same: call it under the
/// namespace lock.
class KnownDirectories {
 public:
  static constexpr std::size_t few = 16;        // components
  static constexpr std::size_t most_known = 8;  // directories

  /// The directory `path` ("a/b"; "": the root). ENOENT, ENOTDIR, and EINVAL for a path that is
  /// none below the root; the text names `whole`.
  Result<Inode*> find(const Namespace& names, std::string_view path, const std::string& whole);

  /// Steps from one directory to the next that all searches took.
  std::uint64_t steps() const { return steps_; }

 private:
  /// A directory that a search led to.
  struct Known {
    std::string path;
    std::uint64_t ino = 0;  // 0: unused
    std::size_t depth = 0;  // components of the path
    std::uint64_t used = 0;
  };

  /// Where a search starts.
  struct Start {
    Known* known = nullptr;  // null: the root
    std::size_t up = 0;      // steps towards the root
    std::size_t size = 0;    // bytes of the path that lead to the directory above these
    std::size_t cost = 0;    // steps, up and down
  };

  /// How far a walk along a path got.
  struct Walk {
    Inode* at = nullptr;
    std::size_t size = 0;   // bytes of the path that lead to `at`
    std::size_t depth = 0;  // components of them
    std::size_t steps = 0;
  };

  Status descend(const Namespace& names, std::string_view path, const std::string& whole,
                 Walk& walk);
  Start nearest(const Namespace& names, std::string_view path) EFS_REQUIRES(mutex_);
  void remember(const Start& start, std::string_view path, const Walk& walk) EFS_REQUIRES(mutex_);

  std::atomic<std::uint64_t> steps_{0};
  Mutex mutex_;  // rank 90 (leaf)
  std::array<Known, most_known> known_ EFS_GUARDED_BY(mutex_);
  // renames of directories in the namespace's life when `known_` was true
  std::uint64_t renames_ EFS_GUARDED_BY(mutex_) = 0;
  std::uint64_t uses_ EFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace efs::fs
