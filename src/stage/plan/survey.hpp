// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lists names and reads attributes on the PFS in parallel, since each call may take milliseconds.

#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stage/copy/worker_pool.hpp"
#include "stage/pfs/deep_paths.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// A name below the root and its attributes on the PFS.
struct Found {
  enum class Problem : std::uint8_t { none, attributes, unreadable, target, listing };
  std::string path;  // relative to the root
  struct stat attributes{};
  std::string target;               // of a symbolic link
  Problem problem = Problem::none;  // what could not be read; `listing`: the directory's names
  Error error;
};

/// Never follows a symbolic link. Not thread-safe; uses threads of its own.
class Survey {
 public:
  /// `root`: an open directory, borrowed.
  Survey(PfsIo& pfs, PfsRef root) : pfs_(pfs), paths_(pfs, root) {}

  /// Receives each name. Called by one thread at a time, not always the same. Returns true if the
  /// survey must descend into the directory.
  using Tell = std::function<bool(Found&& found)>;

  /// Calls `tell` for every name below the directory `path`, parents first, while the survey
  /// continues. A directory that cannot be listed is reported a second time, after its own entry.
  void below(const std::string& path, const Tell& tell);

  /// Looks up these paths; the paths of one directory should be adjacent.
  std::vector<Found> look(std::vector<std::string> paths);

 private:
  struct Listing {
    std::vector<std::string> names;
    std::optional<Error> error;
  };

  std::vector<Listing> list(const std::vector<std::string>& directories);
  void look(std::vector<std::string> paths, const Tell& tell);
  void look_at(Found& found, PfsRef directory);
  /// Does the first of `count` items on this thread, until that takes longer than to start another.
  /// Returns how many.
  std::size_t alone(std::size_t count, const WorkerPool::Work& work);

  PfsIo& pfs_;
  DeepPaths paths_;
  const uid_t user_ = ::geteuid();
  WorkerPool pool_{0};
};

}  // namespace efs::stage
