// SPDX-License-Identifier: BSD-3-Clause
#include "fs/filesystem.hpp"

namespace efs::fs {

struct statvfs Filesystem::statfs() {
  remove_put_off();
  if (owes_space()) {
    free_removed();
  }
  const Space space = backend_.space();
  ReadLock lock(mutex_);
  // contents that are not here will need their room
  const std::uint64_t reserved = reserved_room();
  const std::uint64_t used = space.used + reserved;
  const std::uint64_t available = space.available - std::min(space.available, reserved);
  struct statvfs result{};
  result.f_bsize = result.f_frsize = 4096;
  result.f_blocks = space.capacity / 4096;
  result.f_bfree = (space.capacity - std::min(space.capacity, used)) / 4096;
  result.f_bavail = available / 4096;
  result.f_files = names_.size() + result.f_bavail;  // an inode needs at least one block
  result.f_ffree = result.f_favail = result.f_bavail;
  result.f_namemax = 255;
  return result;
}

}  // namespace efs::fs
