// SPDX-License-Identifier: BSD-3-Clause
#include <linux/falloc.h>

#include <algorithm>

#include "base/slow_work.hpp"
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
  if (has_remote_) {
    EFS_TRY(leaves_room_behind(ino, offset, from.size()));
  }
  return (*content)->write(from, offset);
}

// A write within the file takes no room, unless into a hole.
Status Filesystem::leaves_room_behind(std::uint64_t ino, std::uint64_t offset,
                                      std::uint64_t bytes) {
  const auto container = this->container(ino);
  EFS_TRY(container);
  const auto now = (*container)->attributes();
  EFS_TRY(now);
  const std::uint64_t begin = std::max(static_cast<std::uint64_t>(now->st_size), offset);
  return offset + bytes > begin ? leaves_room(offset + bytes - begin) : Status();
}

// The data at the begin of the range have their blocks.
Status Filesystem::leaves_room_for_blocks(std::uint64_t ino, std::uint64_t offset,
                                          std::uint64_t length) {
  const auto container = this->container(ino);
  EFS_TRY(container);
  const auto hole = (*container)->seek(offset, SEEK_HOLE);
  const std::uint64_t there = hole && *hole > offset ? std::min(*hole - offset, length) : 0;
  return there < length ? leaves_room(length - there) : Status();
}

// The usual reason is a full store, so the record may take the room of removals: 48 bytes, once for
// each file until a snapshot. Does not throw, because then the caller would reply without the
// record.
bool Filesystem::record_lost_write(std::uint64_t ino) {
  WriteLock lock(mutex_);
  Inode* inode = names_.find(ino);
  if (inode == nullptr || !inode->is_regular() || inode->lost_writes++ > 0) {
    return false;
  }
  if (still_marked_.erase(ino) > 0) {
    return true;  // the journal says so
  }
  const LostWrites record{.ino = ino, .lacks = 1};
  Status done = commit_at_any_room(record);
  if (!done && done.error().code == ENOMEM) {
    done = commit_without_memory(record);
  }
  if (!done && !broken_) {
    record_failed_append(done.error());
  }
  return true;
}

// The buffers have had larger records.
Status Filesystem::commit_without_memory(const LostWrites& record) try {
  scratch_.clear();
  encode(record, scratch_);
  const std::uint64_t reserve = journal_->reserve(),
                      size = store::Journal::record_size(scratch_.size());
  EFS_TRY(append(0, -static_cast<std::int64_t>(size)));
  (void)journal_->set_reserve(reserve);
  return names_.apply(record);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

// Syncs the truncation first: after power loss the file must not have its former bytes without the
// record that it lacks some.
Status Filesystem::forget_lost_writes(std::uint64_t ino, std::uint32_t before) {
  if (!needs_no_sync()) {
    slow_work_begins();
    auto container = this->container(ino);
    EFS_TRY(container);
    EFS_TRY((*container)->sync(false));
  }
  WriteLock lock(mutex_);
  Inode* inode = names_.find(ino);
  if (inode == nullptr || inode->lost_writes != before) {
    return {};
  }
  // Without room the journal keeps the mark until a snapshot. A program that tries again and again
  // would else use up the room of removals.
  const Status done = commit(0, LostWrites{.ino = ino, .lacks = 0});
  if (done || (done.error().code != ENOSPC && done.error().code != EDQUOT)) {
    return done;
  }
  still_marked_.insert(ino);
  inode->lost_writes = 0;
  return {};
}

Status Filesystem::allocate(const Caller& caller, std::uint64_t ino, int mode, std::uint64_t offset,
                            std::uint64_t length) {
  EFS_TRY(part_with_sharers(ino));
  free_removed_if(SpaceAccount::noticeable);
  if (has_remote_ && (mode & FALLOC_FL_PUNCH_HOLE) == 0) {
    EFS_TRY(leaves_room_for_blocks(ino, offset, length));
  }
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
    removals_.note();
  }
  return done;
}

}  // namespace efs::fs
