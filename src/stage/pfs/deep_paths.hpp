// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Opens paths below one directory. If neighbours are opened one after the other, the time does not
// grow with their depth.

#include <list>
#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Thread-safe. Keeps some directories of deep paths open. A path of few components is opened from
/// the root each time by one call, because a call to a PFS costs more than the kernel's walk.
class DeepPaths {
 public:
  static constexpr std::size_t few = 32;  // components
  // components between two directories of a path that stay open; the next path may branch off above
  // the deepest one
  static constexpr std::size_t stride = 16;
  static constexpr std::size_t most_open = 64;  // directories

  /// `root`: an open directory, borrowed.
  DeepPaths(PfsIo& pfs, PfsRef root) : pfs_(pfs), root_(root) {}

  /// As PfsIo::open_beneath().
  Result<PfsHandle> open(const std::string& path, int flags);

 private:
  struct Directory {
    std::string path;
    std::shared_ptr<const PfsHandle> handle;
  };

  Result<Directory> passage(const std::string& path);
  Directory remember(Directory directory);
  /// The deepest open directory that is `path` or an ancestor; handle is null if there is none.
  Directory nearest(const std::string& path);

  PfsIo& pfs_;
  const PfsRef root_;
  Mutex mutex_;                                       // rank 90 (leaf)
  std::list<Directory> open_ EFS_GUARDED_BY(mutex_);  // the most recently used first
};

}  // namespace efs::stage
