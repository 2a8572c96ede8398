// SPDX-License-Identifier: BSD-3-Clause
#include "fs/acl.hpp"
#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {
namespace {

// The kernel sends a request without any attribute for a write that must clear privilege bits, and
// for chown(-1, -1), which only the owner may do. Without an open for writing it must be a chown.
bool is_forbidden_chown(const Caller& caller, const Inode& inode, const AttributeChange& c) {
  return c.touch && !inode.is_directory() && inode.write_opens == 0 && caller.uid != 0 &&
         caller.uid != inode.uid && mode_without_privilege(caller, inode) != inode.mode;
}

bool changes_record(const AttributeChange& c) {
  return c.mode || c.uid || c.gid || c.atime || c.mtime || c.touch;
}

// The attributes after the change at this time. The container, not the record, has the times of a
// regular file.
Result<SetAttributes> changed(const Caller& caller, const Inode& inode, const AttributeChange& c,
                              FileTime now) {
  SetAttributes record = attributes_of(inode);
  mode_t mode = c.mode ? (inode.mode & S_IFMT) | (*c.mode & 07777) : inode.mode;
  // chown(2) clears the set-ID bits except for directories. The group before the change counts.
  if ((c.uid || c.gid) && !c.mode && !inode.is_directory()) {
    mode = mode_without_privilege(caller, inode);
  }
  if (c.mode && !record.access_acl.empty()) {
    auto acl = Acl::parse(record.access_acl);
    if (!acl) {
      return std::unexpected(acl.error());
    }
    acl->follow(mode);
    record.access_acl = acl->format();
  }
  record.mode = mode;
  record.uid = c.uid.value_or(inode.uid);
  record.gid = c.gid.value_or(inode.gid);
  record.ctime = now;
  const auto set = [&](const std::optional<FileTime>& time, const FileTime& otherwise) {
    return time == stamp_now ? record.ctime : time.value_or(otherwise);
  };
  record.atime = set(c.atime, inode.atime);
  record.mtime = set(c.mtime, inode.mtime);
  record.dirty = 1;
  return record;
}

}  // namespace

bool changes_epoch(const AttributeChange& change) {
  return change.size || (change.mtime && change.mtime != stamp_now) ||
         (change.mode && (*change.mode & (S_ISUID | S_ISGID)) != 0);
}

Status Filesystem::set_times(std::uint64_t ino, const AttributeChange& change) {
  const Status done = backend_.set_times(ino, change.atime, change.mtime);
  if (changes_epoch({.mtime = change.mtime})) {
    epoch_ends(ino);
  }
  return done || done.error().code != ENOENT
             ? done
             : fail(EIO, "container " + std::to_string(ino) + " is gone from the store");
}

// Before the namespace lock of setattr(), because the data path has its own locks. The dirty bit
// first, so that no changed file appears clean.
Status Filesystem::set_size(std::uint64_t ino, std::uint64_t size) {
  std::uint32_t lost_writes = 0;
  {
    WriteLock lock(mutex_);
    auto found = regular(ino);
    if (!found) {
      return std::unexpected(found.error());
    }
    // by path; a program that has the file open may
    if ((*found)->may_have_been_withdrawn() && (*found)->write_opens == 0) {
      return fail(ESTALE);
    }
    EFS_TRY(mark_dirty(0, **found));
    (*found)->size_set = (*found)->size_set || size > 0;
    lost_writes = size == 0 ? (*found)->lost_writes : 0;
  }
  auto content = file(ino);
  if (!content) {
    return std::unexpected(content.error());
  }
  free_removed_if(SpaceAccount::noticeable);
  const Status done = (*content)->truncate(size);
  epoch_ends(ino);
  EFS_TRY(done);
  ++removals_;
  return lost_writes > 0 ? forget_lost_writes(ino, lost_writes) : Status();
}

Status Filesystem::record_change(const Caller& caller, Inode& target,
                                 const AttributeChange& change) {
  auto record = changed(caller, target, change, clock_.now());
  if (!record) {
    return std::unexpected(record.error());
  }
  EFS_TRY(commit(caller.request, *record));
  if (changes_epoch({.mode = change.mode})) {
    epoch_ends(target.ino);
  }
  if (target.is_regular() && !target.freed && (change.atime || change.mtime)) {
    EFS_TRY(set_times(target.ino, change));
  }
  if ((change.uid || change.gid) && target.xattr("security.capability") != nullptr) {
    EFS_TRY(clear_privilege(caller, target));
  }
  return {};
}

// Without a record, because the container has the times. False: a program may have set the time of
// a clean file, which is a change.
Result<bool> Filesystem::report_mtime(std::uint64_t ino, FileTime mtime) {
  WriteLock lock(mutex_);
  auto found = regular(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  const auto now = stat_of(**found);
  if (now && FileTime(now->st_mtim) == mtime) {
    return true;
  }
  // A shared container's times belong to the cache, too: setattr() parts it first.
  if (!(*found)->dirty || (*found)->freed || !(*found)->unshared) {
    return false;
  }
  ++(*found)->edits;
  AttributeChange reported;
  reported.mtime = mtime;
  EFS_TRY(set_times(ino, reported));
  return true;
}

Result<Entry> Filesystem::setattr(const Caller& caller, std::uint64_t ino,
                                  const AttributeChange& change) {
  if (change.reported) {
    const auto done = report_mtime(ino, *change.mtime);
    if (!done) {
      return std::unexpected(done.error());
    }
    if (*done) {
      return getattr(ino);
    }
  }
  if (change.size || change.mtime) {
    EFS_TRY(part_with_sharers(ino));
  }
  if (change.size) {
    EFS_TRY(set_size(ino, *change.size));
  }
  WriteLock lock(mutex_);
  auto found = inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  Inode& target = **found;
  if (is_forbidden_chown(caller, target, change)) {
    return fail(EPERM);
  }
  // again after the change: a reader between the dirty bit and the change must see a difference
  if (change.size) {
    ++target.edits;
  }
  if (changes_record(change)) {
    EFS_TRY(record_change(caller, target, change));
  }
  if (change.clear_privilege && !change.mode) {
    EFS_TRY(clear_privilege(caller, target));
  }
  return entry_of(target);
}

}  // namespace efs::fs
