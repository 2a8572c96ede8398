#include <fcntl.h>

#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {

Status Filesystem::fsync(std::uint64_t ino, bool data_only) {
  if (backend_.durability() != Durability::volatile_memory) slow_work_begins();
  auto container = backend_.open(ino);
  if (!container) return std::unexpected(container.error());
  // R1: the data before the record that leads to it.
  EFS_TRY((*container)->sync(!data_only));
  if (backend_.durability() != Durability::volatile_memory) EFS_TRY(backend_.sync_name(ino));  // R6
  return fsync_metadata();
}

Status Filesystem::fsync_metadata() {
  if (backend_.durability() != Durability::page) return {};  // each record was persisted when it was appended
  slow_work_begins();
  // Without the lock, so that a sync holds up nobody else. Should a snapshot take the journal's place meanwhile, it was
  // synced before, with all that the old journal said (R5).
  UniqueFd journal;
  {
    ReadLock lock(mutex_);
    journal.reset(::fcntl(journal_->descriptor(), F_DUPFD_CLOEXEC, 0));
  }
  return journal && ::fsync(journal.get()) == 0 ? Status{} : fail_errno("journal");
}

}  // namespace efs::fs
