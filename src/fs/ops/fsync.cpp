// SPDX-License-Identifier: BSD-3-Clause
#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {

Status Filesystem::fsync(std::uint64_t ino, bool data_only) {
  if (backend_.durability() != Durability::volatile_memory) {
    slow_work_begins();
  }
  std::optional<Unsettled> clean;
  {
    ReadLock lock(mutex_);
    if (const Inode* inode = names_.find(ino)) {
      clean = unsettled(*inode);
    }
  }
  auto container = this->container(ino);
  if (!container) {
    return std::unexpected(container.error());
  }
  // R1: the data before the record that leads to it.
  EFS_TRY((*container)->sync(!data_only || clean));  // a settled file has durable times too
  if (backend_.durability() != Durability::volatile_memory) {
    EFS_TRY(backend_.sync_name(ino));  // R6
  }
  if (clean) {
    WriteLock lock(mutex_);
    EFS_TRY(book_settled(std::span(&*clean, 1)));
  }
  return fsync_metadata();
}

// Otherwise each append persisted its record, or the store is volatile.
Status Filesystem::fsync_metadata() {
  return sync_journal();
}

}  // namespace efs::fs
