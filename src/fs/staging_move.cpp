// SPDX-License-Identifier: BSD-3-Clause
// The content of a file moves to another backend: a copy of the container gets a number of its own
// there, and becomes the file's container by the record Moved, while no program has the file open.
#include <unordered_set>

#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/seal.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {
namespace {

bool is_pinned(const Inode& inode) {
  return inode.extra && inode.extra->pinned;
}

/// True if the container is as it was: another write, truncation or change of times shows.
bool is_unchanged(const struct stat& before, const struct stat& now) {
  return before.st_size == now.st_size && FileTime(before.st_mtim) == FileTime(now.st_mtim) &&
         FileTime(before.st_ctim) == FileTime(now.st_ctim);
}

}  // namespace

std::vector<Staging::MoveCandidate> Staging::move_candidates(unsigned place) {
  std::vector<MoveCandidate> found;
  std::unordered_set<std::uint64_t> linked;  // of those with several names, the ones seen
  const ReadLock lock(filesystem_.mutex_);
  filesystem_.names_.for_each_name([&](const Inode& parent, const std::string& name,
                                       const Inode& inode) {
    filesystem_.mutex_.assert_held_shared();
    if (!inode.is_regular() || inode.is_remote() || inode.is_open() || is_pinned(inode) ||
        filesystem_.backend_.place_of(inode.ino) != place ||
        (inode.nlink > 1 && !linked.insert(inode.ino).second)) {
      return;
    }
    const auto container = filesystem_.container_stat_of(inode, nullptr);
    if (!container || container->st_blocks == 0 || is_sealed(*container)) {
      return;
    }
    found.push_back({.ino = inode.ino,
                     .path = filesystem_.names_.path_of(parent, name),
                     .bytes = static_cast<std::uint64_t>(container->st_blocks) * 512,
                     .since = std::max(FileTime(container->st_atim), FileTime(container->st_mtim)),
                     .was_used = inode.was_used.exchange(false)});
  });
  return found;
}

// A container that efs itself holds, such as an export does, is open, too.
Status Staging::may_move(const Inode& inode, const Move& move) {
  filesystem_.mutex_.assert_held_shared();
  if (move.pins == Pins::hold && is_pinned(inode)) {
    return fail(EPERM, "it is pinned");
  }
  const unsigned place = move.place;
  const auto item = item_of({.inode = &inode, .path = move.path, .keep_path = {}});
  if (!item.content.unreadable.empty()) {
    return fail(EIO, item.content.unreadable);
  }
  Backend& all = filesystem_.backend_;
  const bool is_only_copy = item.pfs.dirty || !item.pfs.on_pfs();
  if (is_only_copy && all.at(place).durability() == Durability::volatile_memory &&
      all.at(item.content.place).durability() != Durability::volatile_memory) {
    return fail(EPERM,
                "that backend does not survive a restart of the machine, and the PFS does not have "
                "its content");
  }
  const auto container = filesystem_.container_stat_of(inode, nullptr);
  EFS_TRY(container);
  if (is_sealed(*container)) {
    return fail(EBUSY, "the cache shares its content");
  }
  if (inode.is_open() || all.may_be_open(inode.ino)) {
    return fail(EBUSY, "a program may have it open or mapped");
  }
  return {};
}

Result<std::optional<Staging::Move>> Staging::begin_move(const std::string& path, unsigned place,
                                                         Pins pins) {
  if (filesystem_.failed()) {
    return fail(EROFS, "the file system is read-only: its journal has failed");
  }
  if (place >= filesystem_.backend_.places()) {
    return fail(EINVAL, "there is no such backend");
  }
  Move move{.path = path, .place = place, .pins = pins, .source = {}, .target = {}};
  {
    const ReadLock lock(filesystem_.mutex_);
    const auto there = inode_at(path);
    EFS_TRY(there);
    const Inode& inode = **there;
    if (!inode.is_regular()) {
      return fail(EINVAL, "not a regular file");
    }
    if (inode.is_remote() || filesystem_.backend_.place_of(inode.ino) == place) {
      return std::nullopt;
    }
    move.ino = inode.ino;
  }
  close_unused(move.ino);
  EFS_TRY(look_before_move(move));
  auto source = open_container(move.ino, CachePolicy::only_read);
  EFS_TRY(source);
  move.source = std::move(source->container);
  const auto before = move.source->attributes();
  EFS_TRY(before);
  move.before = *before;
  EFS_TRY(make_target(move));
  return move;
}

Status Staging::look_before_move(Move& move) {
  const ReadLock lock(filesystem_.mutex_);
  const auto there = inode_at(move.path);
  EFS_TRY(there);
  const Inode& inode = **there;
  if (inode.ino != move.ino) {
    return fail(ESTALE, "another file has this name by now");
  }
  move.edits = inode.edits;  // first: an open for writing, from now on, changes this number
  move.is_reserved = inode.reserved;
  return may_move(inode, move);
}

// A backend that spills would make it elsewhere.
Status Staging::make_target(Move& move) {
  const auto bytes = static_cast<std::uint64_t>(move.before.st_blocks) * 512;
  const auto no_room = [] {
    return fail(ENOSPC, "that backend has no room for it");
  };
  Backend& all = filesystem_.backend_;
  if (all.at(move.place).space().available < bytes) {
    return no_room();
  }
  auto target = begin_open_file_at(move.place);
  EFS_TRY(target);
  if (all.place_of(target->ino) != move.place) {
    const std::uint64_t other = target->ino;
    target->container.reset();
    abandon(other);
    return no_room();
  }
  move.target = std::move(*target);
  if (move.is_reserved && move.before.st_size > 0) {
    const Status reserved =
        move.target.container->allocate(0, 0, static_cast<std::uint64_t>(move.before.st_size));
    if (!reserved) {
      abandon_move(std::move(move));
    }
    return reserved;
  }
  return {};
}

void Staging::abandon_move(Move move) {
  move.source.reset();
  move.target.container.reset();
  abandon(move.target.ino);
}

// R1: the copy is durable before the record.
Status Staging::end_move(Move move) {
  Status done;
  bool waits = false;  // the former container, for the record
  try {
    done = secure_copy(move);
    move.source.reset();
    move.target.container.reset();
    if (done) {
      close_unused(move.ino);
      const WriteLock lock(filesystem_.mutex_);
      done = switch_container(move);
      waits = done && filesystem_.waits_for_journal(move.target.ino);
    }
  } catch (const std::bad_alloc&) {  // before the exchange
    done = fail(ENOMEM);
    move.source.reset();
    move.target.container.reset();
  }
  if (done) {
    filesystem_.remove_container({.gone = true, .container = move.target.ino, .waits = waits});
    filesystem_.backend_.look_again(false);
    if (KernelView* kernel = filesystem_.kernel_) {
      kernel->space_given_back(move.ino);
    }
  } else if (!filesystem_.failed()) {  // else the journal may have the record
    abandon(move.target.ino);
  }
  return done;
}

// A write-back of the source that failed would be forgotten with it.
Status Staging::secure_copy(const Move& move) {
  const auto times = move.source->attributes();
  EFS_TRY(times);
  if (filesystem_.holder_of(move.ino).durability() == Durability::page) {
    EFS_TRY(move.source->sync(false));
  }
  Container& target = *move.target.container;
  EFS_TRY(target.set_times(FileTime(times->st_atim), FileTime(times->st_mtim)));
  if (filesystem_.needs_no_sync() || !filesystem_.options_.rules.sync_before_moved) {
    return {};
  }
  EFS_TRY(target.sync(true));
  return filesystem_.backend_.sync_name(move.target.ino);
}

// A program's open needs the namespace lock to be counted, and opens the container later. So with
// the lock, and without an open, none is on its way to the former container. Whatever else opens
// one by its number, such as a truncation by path, comes before the exchange, which then fails, or
// finds the new one.
Status Staging::switch_container(const Move& move) {
  filesystem_.mutex_.assert_held();
  const auto there = inode_at(move.path);
  EFS_TRY(there);
  Inode& inode = **there;
  if (inode.ino != move.ino || inode.is_remote() || inode.edits != move.edits) {
    return fail(ESTALE, "a program has changed, removed or replaced it meanwhile");
  }
  EFS_TRY(may_move(inode, move));
  Backend& all = filesystem_.backend_;
  const auto now = all.attributes(move.ino), target = all.attributes(move.target.ino);
  EFS_TRY(now);
  EFS_TRY(target);
  if (!is_unchanged(move.before, *now)) {
    return fail(ESTALE, "a program has changed or read it meanwhile");
  }
  const FileTime shown = shown_ctime(inode, *now);
  (void)inode.more();  // now: apply() must not lack memory after the exchange
  EFS_TRY(all.exchange(move.ino, move.target.ino, Exchange::if_unused));
  // The move is no change that a program may see.
  const Status recorded = filesystem_.commit(0, Moved{.ino = move.ino,
                                                      .container = move.target.ino,
                                                      .shown = shown,
                                                      .ctime = target->st_ctim,
                                                      .mtime = target->st_mtim});
  if (!recorded) {
    (void)all.exchange(move.ino, move.target.ino, Exchange::undo);
    return recorded;
  }
  filesystem_.room_.drop(move.ino);
  return {};
}

Status Staging::set_pinned(const std::string& path, bool pinned) {
  const WriteLock lock(filesystem_.mutex_);
  const auto there = inode_at(path);
  EFS_TRY(there);
  const Inode& inode = **there;
  if (!inode.is_regular()) {
    return fail(EINVAL, path + ": not a regular file");
  }
  return is_pinned(inode) == pinned
             ? Status()
             : filesystem_.commit(
                   0, Pinned{.ino = inode.ino, .pinned = static_cast<std::uint8_t>(pinned)});
}

}  // namespace efs::fs
