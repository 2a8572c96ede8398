// SPDX-License-Identifier: BSD-3-Clause
#include <linux/falloc.h>

#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {

bool makes_holes(int mode) {
  return (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
}

Result<std::size_t> Filesystem::write(const Caller& caller, std::uint64_t ino,
                                      std::span<const std::byte> from, std::uint64_t offset) {
  bool privileged = false;
  {
    ReadLock lock(mutex_);
    auto found = regular(ino);
    if (!found) {
      return std::unexpected(found.error());
    }
    privileged = (*found)->carries_privilege() &&
                 (caller.uid != 0 || (*found)->xattr("security.capability") != nullptr);
  }
  if (privileged) {
    WriteLock lock(mutex_);
    auto found = regular(ino);
    if (!found) {
      return std::unexpected(found.error());
    }
    EFS_TRY(clear_privilege(caller, **found));
  }
  auto content = file(ino);
  if (!content) {
    return std::unexpected(content.error());
  }
  return (*content)->write(from, offset);
}

bool Filesystem::record_lost_write(std::uint64_t ino) {
  ReadLock lock(mutex_);
  Inode* inode = names_.find(ino);
  return inode != nullptr && !inode->lacks_writes.exchange(true);
}

Status Filesystem::allocate(const Caller& caller, std::uint64_t ino, int mode, std::uint64_t offset,
                            std::uint64_t length) {
  EFS_TRY(part_with_sharers(ino));
  free_removed_if(SpaceAccount::noticeable);
  {
    WriteLock lock(mutex_);
    auto found = regular(ino);
    if (!found) {
      return std::unexpected(found.error());
    }
    EFS_TRY(holder_of(ino).admit_writer());
    EFS_TRY(mark_dirty(caller.request, **found));
    (*found)->reserved = (*found)->reserved || (mode & FALLOC_FL_PUNCH_HOLE) == 0;
    if ((*found)->reserved) {
      room_.keep(ino);
    }
  }
  auto content = file(ino);
  if (!content) {
    return std::unexpected(content.error());
  }
  const Status done = (*content)->allocate(mode, offset, length);
  if (makes_holes(mode)) {
    epoch_ends(ino);
  }
  if (done && (mode & FALLOC_FL_PUNCH_HOLE) != 0) {
    ++removals_;
  }
  return done;
}

}  // namespace efs::fs
