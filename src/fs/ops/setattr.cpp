#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {
namespace {

bool changes_record(const AttributeChange& c) { return c.mode || c.uid || c.gid || c.atime || c.mtime || c.touch; }

// The attributes after the change. Times of regular files are the container's and not kept in the record.
SetAttributes changed(const Inode& inode, const AttributeChange& c) {
  mode_t mode = c.mode ? (inode.mode & S_IFMT) | (*c.mode & 07777) : inode.mode;
  if ((c.uid || c.gid) && inode.is_regular()) {  // chown takes the privilege bits away (chown(2))
    mode &= ~static_cast<mode_t>(S_ISUID);
    if ((mode & S_IXGRP) != 0) mode &= ~static_cast<mode_t>(S_ISGID);
  }
  return {inode.ino, mode, c.uid.value_or(inode.uid), c.gid.value_or(inode.gid), c.atime.value_or(inode.atime), c.mtime.value_or(inode.mtime), file_time_now(), 1};
}

}  // namespace

Result<Entry> Filesystem::setattr(const Caller& caller, std::uint64_t ino, const AttributeChange& change) {
  if (change.size) {
    // Before the lock: the data path has its own. The dirty bit first, so that no changed file looks clean.
    {
      WriteLock lock(mutex_);
      auto found = regular(ino);
      if (!found) return std::unexpected(found.error());
      EFS_TRY(mark_dirty(caller.request, **found));
    }
    auto content = file(ino);
    if (!content) return std::unexpected(content.error());
    EFS_TRY((*content)->truncate(*change.size));
  }
  WriteLock lock(mutex_);
  auto found = inode(ino);
  if (!found) return std::unexpected(found.error());
  Inode& target = **found;
  if (changes_record(change)) {
    EFS_TRY(settle_one(target));
    EFS_TRY(commit(caller.request, changed(target, change)));
    if (target.is_regular() && (change.atime || change.mtime)) EFS_TRY(backend_.set_times(ino, change.atime, change.mtime));
    if ((change.uid || change.gid) && target.extra && target.extra->xattrs.contains("security.capability")) EFS_TRY(clear_privilege(caller.request, target));
  }
  if (change.clear_privilege && !change.mode) EFS_TRY(clear_privilege(caller.request, target));
  return entry_of(target);
}

}  // namespace efs::fs
