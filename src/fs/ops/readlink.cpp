// SPDX-License-Identifier: BSD-3-Clause
#include "fs/filesystem.hpp"

namespace efs::fs {

Result<std::string> Filesystem::readlink(std::uint64_t ino) {
  ReadLock lock(mutex_);
  auto found = inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  if (!S_ISLNK((*found)->mode)) {
    return fail(EINVAL);
  }
  return (*found)->extra->target;
}

}  // namespace efs::fs
