// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds directories by path. If callers ask for neighbouring paths one after the other, the time
// does not grow with the depth.

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

/// True if `name` can be a component of a path below the root.
bool is_component(std::string_view name);

/// Remembers the last directories that deep paths led to. The next search starts from the nearest
/// of them and goes up and down again, or starts from the root. A short path is always searched
/// from the root. Always use one instance with the same namespace, and call it under the namespace
/// lock. Thread-safe under the shared lock.
class KnownDirectories {
 public:
  static constexpr std::size_t few = 16;        // components
  static constexpr std::size_t most_known = 8;  // directories

  /// Returns the directory `path` ("a/b"; "": the root). Errors: ENOENT, ENOTDIR, and EINVAL if
  /// `path` is not a path below the root. The error text names `whole`.
  Result<Inode*> find(const Namespace& names, std::string_view path, const std::string& whole);

  /// The number of steps of all searches, each from one directory to the next.
  std::uint64_t steps() const { return steps_; }

 private:
  /// A directory that an earlier search led to.
  struct Known {
    std::string path;
    std::uint64_t ino = 0;  // 0: unused
    std::size_t depth = 0;  // components of the path
    std::uint64_t used = 0;
  };

  /// The start of a search.
  struct Start {
    Known* known = nullptr;  // null: the root
    std::size_t up = 0;      // steps towards the root
    std::size_t size = 0;    // bytes of the path that lead to the directory after these steps
    std::size_t cost = 0;    // steps, up and down
  };

  /// The progress of a walk along a path.
  struct Walk {
    Inode* at = nullptr;
    std::size_t size = 0;   // bytes of the path that lead to `at`
    std::size_t depth = 0;  // components of these bytes
    std::size_t steps = 0;
  };

  Status descend(const Namespace& names, std::string_view path, const std::string& whole,
                 Walk& walk);
  Start nearest(const Namespace& names, std::string_view path) EFS_REQUIRES(mutex_);
  void remember(const Start& start, std::string_view path, const Walk& walk) EFS_REQUIRES(mutex_);

  std::atomic<std::uint64_t> steps_{0};
  Mutex mutex_;  // rank 90 (leaf)
  std::array<Known, most_known> known_ EFS_GUARDED_BY(mutex_);
  // the value of Namespace::directory_renames() for which `known_` is valid
  std::uint64_t renames_ EFS_GUARDED_BY(mutex_) = 0;
  std::uint64_t uses_ EFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace efs::fs
