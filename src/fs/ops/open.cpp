// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include <new>

#include "base/log.hpp"
#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {
namespace {

// The kernel takes the recorded size of a file whose container is gone, 0, for its end, and asks
// for no data.
Status has_container(Backend& backend, std::uint64_t ino) try {
  const auto there = backend.attributes(ino);
  if (there) {
    return {};
  }
  const int code = there.error().code;
  if (code != ENOENT && code != EUCLEAN) {
    return std::unexpected(there.error());
  }
  return fail(EIO, "container " + std::to_string(ino) + " is gone from the store");
} catch (const std::bad_alloc&) {  // not further up: the open is counted

  return fail(ENOMEM);
}

}  // namespace

Result<Filesystem::Opened> Filesystem::open(const Caller& caller, std::uint64_t ino, int flags,
                                            bool just_made) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  bool dirty = false;
  Opened opened;
  {
    ReadLock lock(mutex_);
    auto found = regular(ino);
    if (!found) {
      return std::unexpected(found.error());
    }
    Inode& inode = **found;
    if (writes && inode.may_have_been_withdrawn()) {
      return fail(ESTALE);
    }
    // Counted in one step with the look at the dirty bit: an unload that makes the file clean after
    // this sees it.
    dirty = inode.dirty;
    EFS_TRY(add_open(caller, inode, flags, opened));
    // The kernel writes through a passthrough descriptor without a word to us, so an inode whose
    // privilege bits must fall at the first write keeps to the daemon's path. From here on the
    // content does not move to another backend.
    opened.passthrough = !inode.carries_privilege() && holder_of(ino).offers_descriptor();
  }
  Status status = opened.passthrough ? Status() : has_container(backend_, ino);
  if (status) {
    status = prepare_open(caller, ino, writes && !dirty, writes);
  }
  if (!status) {
    opened.passthrough = false;
  }
  if (status || (just_made && dirty)) {
    return opened;
  }
  release(opened.handle);
  return std::unexpected(status.error());
}

// An earlier worker may have added the open of a repeated request. It is counted since the
// takeover.
Status Filesystem::add_open(const Caller& caller, Inode& inode, int flags, Opened& opened) {
  if (const auto earlier =
          caller.resent ? opens_.find(caller.owner, caller.request) : std::nullopt) {
    opened.handle = *earlier;
    opened.attributes_go_stale = (flags & O_ACCMODE) == O_RDWR;
    return {};
  }
  // Counted first: another thread may close all that the owner has open.
  opened.attributes_go_stale = inode.count_open(flags);
  const auto handle = opens_.open(
      {.owner = caller.owner, .ino = inode.ino, .flags = flags, .request = caller.request});
  if (!handle) {
    inode.count_close(flags);
    if (!opens_were_full_.test_and_set()) {
      log::error(
          "event=opens_failed reason=\"the table of open files is full\" note=\"later ones are not "
          "logged\"");
    }
    return fail(ENFILE);
  }
  opened.handle = *handle;
  return {};
}

Status Filesystem::prepare_open(const Caller& caller, std::uint64_t ino, bool becomes_dirty,
                                bool writes) try {
  if (writes) {
    make_room_ahead();
    if (space_.level() == SpaceAccount::Level::scarce) {
      zeros_.free_left();
      room_.give_back_all();
    }
  }
  if (writes) {
    EFS_TRY(holder_of(ino).admit_writer());
  }
  if (writes) {
    EFS_TRY(part_with_sharers(ino));
  }
  if (becomes_dirty) {
    WriteLock lock(mutex_);
    auto found = regular(ino);
    EFS_TRY(found);
    EFS_TRY(mark_dirty(caller.request, **found));
  }
  return {};
} catch (const std::bad_alloc&) {  // not further up: the open is counted

  return fail(ENOMEM);
}

// A write-only descriptor cannot be mapped. The kernel sends a RELEASE after the last write,
// including asynchronous ones. A passthrough mapping outlives the mount, so the counts are not
// exact after a start on an existing store. After a takeover they are exact, but a dirty file may
// be mapped (inherit_references()).
bool Filesystem::is_counted(const Inode& inode) const {
  return !inode.opened_read_write && (!recovery_.found || options_.takeover);
}

bool Filesystem::is_counted_quiet(std::uint64_t ino) const {
  ReadLock lock(mutex_);
  const auto found = regular(ino);
  return found && is_counted(**found) && (*found)->write_opens == 0;
}

std::vector<std::uint64_t> Filesystem::may_be_mapped() const {
  return regular_files([](const Inode& inode) { return inode.read_write_opens > 0; });
}

std::vector<std::uint64_t> Filesystem::open_for_writing() const {
  return regular_files([](const Inode& inode) { return inode.write_opens > 0; });
}

template <typename Predicate>
std::vector<std::uint64_t> Filesystem::regular_files(Predicate wanted) const {
  std::vector<std::uint64_t> found;
  ReadLock lock(mutex_);
  names_.for_each([&](const Inode& inode) {
    if (inode.is_regular() && wanted(inode)) {
      found.push_back(inode.ino);
    }
  });
  return found;
}

bool Filesystem::read_moves_atime(std::uint64_t ino, int flags) const {
  if (options_.access_times == AccessTimes::kept || (flags & O_NOATIME) != 0 ||
      (flags & O_ACCMODE) == O_WRONLY) {
    return false;
  }
  const auto st = backend_.attributes(ino);
  return st && atime_is_due(options_.access_times, st->st_atim, st->st_mtim, st->st_ctim);
}

bool Filesystem::release(std::uint64_t handle) {
  const auto file = opens_.close(handle);
  if (!file) {
    return false;
  }
  const Closed closed = count_release(*file);
  if (closed != Closed::last && (file->flags & O_ACCMODE) != O_RDONLY) {
    room_.settle(file->ino);
  }
  free_closed(file->ino, closed);
  return true;
}

// Rooms and zeros are given back together or later, because each of them waits for the kernel. A
// lack of memory leaves space in use, until the next start at the latest.
void Filesystem::close_all(const Owner& owner) try {
  opens_.close_if([&](const OpenFile& file) { return file.owner == owner; },
                  [this](const OpenFile& file) {
                    record_survivor(file);
                    const Closed closed = count_release(file);
                    try {
                      if (closed == Closed::last_writer) {
                        zeros_.leave(file.ino);
                      } else {
                        free_closed(file.ino, closed);
                      }
                    } catch (const std::bad_alloc&) {
                    }  // the next file
                  });
  room_.give_back_all();
} catch (const std::bad_alloc&) {
}

void Filesystem::record_survivor(const OpenFile& file) {
  ReadLock lock(mutex_);
  if (Inode* found = names_.find(file.ino);
      found != nullptr && (file.flags & O_ACCMODE) != O_RDONLY) {
    found->opened_read_write = true;
  }
}

void Filesystem::free_closed(std::uint64_t ino, Closed closed) {
  if (closed == Closed::last_writer) {
    return zeros_.closed(ino);
  }
  if (closed == Closed::any || space_.level() == SpaceAccount::Level::ample) {
    return;
  }
  {
    const Removing removing(removals_);
    Reaped reaped;
    {
      WriteLock lock(mutex_);
      Inode* found = names_.find(ino);
      if (found != nullptr && !found->freed && found->is_unreachable()) {
        reaped = free_unopened(*found);
      }
    }
    remove_container(reaped);
  }
  free_removed_if(SpaceAccount::noticeable);
}

Filesystem::Closed Filesystem::count_release(const OpenFile& file) {
  ReadLock lock(mutex_);
  Inode* found = names_.find(file.ino);
  if (found == nullptr) {
    return Closed::any;
  }
  found->count_close(file.flags);
  if (found->is_unreachable()) {
    removals_.note();
    return Closed::last;
  }
  const bool was_writer = (file.flags & O_ACCMODE) != O_RDONLY;
  if (!was_writer || found->write_opens > 0) {
    return Closed::any;
  }
  if (ChangeWatch* const watch = watch_) {
    watch->closed(file.ino);
  }
  return may_punch(*found) ? Closed::last_writer : Closed::any;
}

}  // namespace efs::fs
