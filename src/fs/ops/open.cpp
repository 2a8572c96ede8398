#include <fcntl.h>

#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {

Result<Filesystem::Opened> Filesystem::open(const Caller& caller, std::uint64_t ino, int flags) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  bool passthrough = backend_.offers_descriptor();
  bool dirty = false;
  {
    ReadLock lock(mutex_);
    auto found = regular(ino);
    if (!found) return std::unexpected(found.error());
    // The kernel writes through a passthrough descriptor without a word to us, so an inode whose privilege bits must
    // fall at the first write keeps to the daemon's path.
    if ((*found)->carries_privilege()) passthrough = false;
    dirty = (*found)->dirty;
  }
  if (writes) {
    EFS_TRY(backend_.admit_writer());
  }
  if (writes && !dirty) {
    WriteLock lock(mutex_);
    auto found = regular(ino);
    if (!found) return std::unexpected(found.error());
    EFS_TRY(mark_dirty(caller.request, **found));
  }
  Opened opened;
  if (passthrough) {
    auto container = backend_.open(ino);
    if (!container) return std::unexpected(container.error());
    opened = {.passthrough = true, .container = *container};
  }
  if (writes) {
    ReadLock lock(mutex_);
    auto found = regular(ino);
    if (!found) return std::unexpected(found.error());
    ++(*found)->write_opens;
    if ((flags & O_ACCMODE) == O_RDWR) {
      (*found)->opened_read_write = true;
      opened.attributes_go_stale = (*found)->read_write_opens.fetch_add(1) == 0;
    }
  }
  return opened;
}

void Filesystem::release(std::uint64_t ino, int flags) {
  if ((flags & O_ACCMODE) == O_RDONLY) return;
  ReadLock lock(mutex_);
  Inode* found = names_.find(ino);
  if (found == nullptr || found->write_opens == 0) return;
  --found->write_opens;
  if ((flags & O_ACCMODE) == O_RDWR && found->read_write_opens > 0) --found->read_write_opens;
}

}  // namespace efs::fs
