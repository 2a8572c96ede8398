// SPDX-License-Identifier: BSD-3-Clause
#include "fs/filesystem.hpp"

namespace efs::fs {

Result<Entry> Filesystem::getattr(std::uint64_t ino) {
  ReadLock lock(mutex_);
  auto found = inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  return entry_of(**found);
}

}  // namespace efs::fs
