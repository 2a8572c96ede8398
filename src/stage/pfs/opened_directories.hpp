// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Records the directories on the PFS whose owner lacks read or write permission and whose mode a
// stage-out has changed for its duration. The file `meta/opened` of the store has the original
// modes. If the process dies, a later process restores them.
//
// Format: each record is a mode (four octal digits; "----" means restored), a blank, the absolute
// path and a NUL byte. The last record of a path counts. An incomplete last record is ignored: its
// directory's mode was not changed yet. The file is empty if all modes are restored.

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::stage {

inline constexpr const char* opened_name = "opened";

/// Thread-safe.
class OpenedDirectories {
 public:
  /// Opens the record of the store with this metadata directory, which is borrowed and must outlive
  /// the object. A missing file, or one that is not a regular file, counts as empty.
  static std::unique_ptr<OpenedDirectories> open(int metadata);

  /// Call it before the mode of the directory `path` changes. `mode`: the original mode, without
  /// the type. Durable on return. After an error only this process can restore the mode.
  Status note(const std::string& path, mode_t mode);

  /// The mode is restored, or needs no restoring. Not durable: a later process checks whether the
  /// directory's mode is still changed.
  void done(const std::string& path);

  /// The mode could not be restored: take() returns the directory again.
  void stays_open(const std::string& path);

  /// True if take() has a directory to return.
  bool has_any_of_before();

  /// Returns the directories below `directory` that a dead process recorded, or whose mode could
  /// not be restored, by paths relative to it. Each is returned once. The caller restores the mode
  /// and calls done().
  std::map<std::string, mode_t> take(const std::string& directory);

 private:
  explicit OpenedDirectories(int metadata) : metadata_(metadata) {}

  void load();
  Status append(const std::string& record) EFS_REQUIRES(mutex_);

  const int metadata_;
  Mutex mutex_;                           // rank 90 (leaf): guards what follows
  UniqueFd file_ EFS_GUARDED_BY(mutex_);  // opened by the first note()
  off_t end_ EFS_GUARDED_BY(mutex_) = 0;
  std::map<std::string, mode_t> opened_ EFS_GUARDED_BY(mutex_);  // all whose mode is not restored
  std::map<std::string, mode_t> from_before_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
