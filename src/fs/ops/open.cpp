#include <fcntl.h>

#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {
namespace {

// The kernel writes through a passthrough descriptor without a word to us, so an inode whose privilege bits must
// fall at the first write keeps to the daemon's path.
bool carries_privilege(const Inode& inode) {
  return (inode.mode & (S_ISUID | S_ISGID)) != 0 || (inode.extra && inode.extra->xattrs.contains("security.capability"));
}

}  // namespace

Result<Filesystem::Opened> Filesystem::open(const Caller& caller, std::uint64_t ino, int flags) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  bool passthrough = backend_.offers_descriptor();
  {
    ReadLock lock(mutex_);
    auto found = regular(ino);
    if (!found) return std::unexpected(found.error());
    if (carries_privilege(**found)) passthrough = false;
    if ((flags & O_ACCMODE) == O_RDWR) (*found)->opened_read_write = true;
  }
  if (writes) {
    EFS_TRY(backend_.admit_writer());
    WriteLock lock(mutex_);
    auto found = regular(ino);
    if (!found) return std::unexpected(found.error());
    EFS_TRY(mark_dirty(caller.request, **found));
    ++(*found)->writers;
    ++(*found)->edits;
  }
  if (!passthrough) return Opened{};
  auto container = backend_.open(ino);
  if (!container) {
    release(ino, flags);
    return std::unexpected(container.error());
  }
  return Opened{true, *container};
}

void Filesystem::release(std::uint64_t ino, int flags) {
  if ((flags & O_ACCMODE) == O_RDONLY) return;
  ReadLock lock(mutex_);
  // Never below zero: the opens of an earlier process were not counted here.
  if (Inode* inode = names_.find(ino))
    for (std::uint32_t n = inode->writers; n > 0 && !inode->writers.compare_exchange_weak(n, n - 1);) {}
}

}  // namespace efs::fs
