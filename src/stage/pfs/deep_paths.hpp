#pragma once
// Paths below one directory, opened in time that does not grow with their depth where neighbours
// are opened one after the other.

#include <list>
#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Thread-safe. Keeps some directories open that deep paths led through. A path of few components
/// is opened from the root each time, by one call:
/// each call to a PFS costs more than the kernel's walk.
class DeepPaths {
 public:
  static constexpr std::size_t few = 32;  // components
  // components between the directories of one path that stay open: the next path may be above it
  static constexpr std::size_t stride = 16;
  static constexpr std::size_t most_open = 64;  // directories

  /// `root`: an open directory, borrowed.
  DeepPaths(PfsIo& pfs, int root) : pfs_(pfs), root_(root) {}

  /// As PfsIo::open_beneath().
  Result<UniqueFd> open(const std::string& path, int flags);

 private:
  struct Directory {
    std::string path;
    std::shared_ptr<const UniqueFd> fd;
  };

  Result<Directory> passage(const std::string& path);
  Directory remember(Directory directory);
  /// The deepest open directory that is `path` or above it; fd null: there is none.
  Directory nearest(const std::string& path);

  PfsIo& pfs_;
  const int root_;
  Mutex mutex_;                                       // rank 90 (leaf)
  std::list<Directory> open_ EFS_GUARDED_BY(mutex_);  // the last used first
};

}  // namespace efs::stage
