// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Ends an open of which a test has not kept the handle.

#include <fcntl.h>

#include <cstdint>
#include <optional>

#include "fs/filesystem.hpp"

namespace efs::test {

/// A handle of this inode with the access mode of `flags`, if there is one.
inline std::optional<std::uint64_t> handle_of(const fs::Filesystem& filesystem, std::uint64_t ino,
                                              int flags) {
  std::optional<std::uint64_t> found;
  filesystem.open_files().for_each([&](std::uint64_t handle, const fs::OpenFile& file) {
    if (file.ino == ino && (file.flags & O_ACCMODE) == (flags & O_ACCMODE)) {
      found = handle;
    }
  });
  return found;
}

/// Releases one such handle. Returns false if there is none. Other threads may do the same.
inline bool release(fs::Filesystem& filesystem, std::uint64_t ino, int flags) {
  while (const auto handle = handle_of(filesystem, ino, flags)) {
    if (filesystem.release(*handle)) {
      return true;
    }
  }
  return false;
}

}  // namespace efs::test
