// SPDX-License-Identifier: BSD-3-Clause
// Files that lose their contents, and not their names, because other files need the room. The PFS
// has the contents. A container is emptied in two steps: the record Evicted, and when it is durable
// (R3) the truncation. Remote::is_full is set between the two.
#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {
namespace {

// True if the PFS may have the content by what the inode and its entry record.
bool is_candidate(const Inode& inode, const ledger::FileEntry& entry) {
  return inode.is_regular() && !inode.dirty && inode.nlink == 1 && !inode.is_remote() &&
         !inode.is_open() && !(inode.extra && inode.extra->pinned) && entry.parts.empty() &&
         (entry.imported || entry.exported);
}

Status check_kind(const Inode& inode) {
  if (!inode.is_regular() || inode.nlink != 1) {
    return fail(EMLINK, "it has further names, or is not a regular file");
  }
  return inode.extra && inode.extra->pinned ? fail(EPERM, "it is pinned") : Status();
}

}  // namespace

std::vector<Staging::EvictionCandidate> Staging::eviction_candidates(const MayLeave& may_leave) {
  std::vector<EvictionCandidate> found;
  const ReadLock lock(filesystem_.mutex_);
  filesystem_.names_.for_each([&](const Inode& inode) {
    filesystem_.mutex_.assert_held_shared();
    const ledger::FileEntry& entry = filesystem_.names_.files().of(inode.ino);
    if (!is_candidate(inode, entry)) {
      return;
    }
    const bool is_input = !entry.exported;
    const ledger::Names& names = is_input ? entry.imported->names : entry.exported->names;
    const Remote* remote = is_input && inode.extra ? inode.extra->remote.get() : nullptr;
    if (names.empty() || names.had_several() ||
        (may_leave && !may_leave(names.text(), is_input, remote))) {
      return;
    }
    const auto attributes = filesystem_.container_stat_of(inode, nullptr);
    if (!attributes || attributes->st_blocks == 0 || is_sealed(*attributes)) {
      return;
    }
    EvictionCandidate one{.ino = inode.ino,
                          .path = names.text(),
                          .bytes = static_cast<std::uint64_t>(attributes->st_blocks) * 512,
                          .since = FileTime(attributes->st_ctim),
                          .was_used = inode.was_used.exchange(false),
                          .is_input = is_input};
    if (remote != nullptr) {
      one.remote = *remote;
    }
    found.push_back(std::move(one));
  });
  return found;
}

// The content of a sealed container is also another file's.
Status Staging::may_evict(const Inode& inode, const std::string& path, std::uint64_t ino,
                          const Remote& remote) {
  filesystem_.mutex_.assert_held();
  if (inode.ino != ino || inode.is_remote()) {
    return fail(ESTALE, "another file has this name by now, or its content is gone already");
  }
  EFS_TRY(check_kind(inode));
  const auto item = item_of({.inode = &inode, .path = path, .keep_path = {}});
  if (item.pfs.dirty || !item.pfs.parts.empty() || !item.content.unreadable.empty()) {
    return fail(EBUSY, "the PFS does not have its content");
  }
  const auto& known = item.pfs.on_pfs();
  if (!known || !is_same_file(*known, remote.version) ||
      static_cast<std::uint64_t>(item.attributes.st_size) != remote.version.size) {
    return fail(ESTALE, "the PFS has another version of it");
  }
  if (inode.is_open() || filesystem_.backend_.may_be_open(ino)) {
    return fail(EBUSY, "a program may have it open or mapped");
  }
  const auto container = filesystem_.container_stat_of(inode, nullptr);
  EFS_TRY(container);
  return is_sealed(*container) ? fail(EBUSY, "the cache shares its content") : Status();
}

Status Staging::check_evictable(const std::string& path, std::uint64_t ino, const Remote& remote) {
  close_unused(ino);
  const WriteLock lock(filesystem_.mutex_);
  const auto there = evictable_at(path, ino, remote);
  return there ? Status() : std::unexpected(there.error());
}

Result<const Inode*> Staging::evictable_at(const std::string& path, std::uint64_t ino,
                                           const Remote& remote) {
  filesystem_.mutex_.assert_held();
  const auto there = inode_at(path);
  EFS_TRY(there);
  EFS_TRY(may_evict(**there, path, ino, remote));
  return *there;
}

// A program's open needs the namespace lock to be counted, so none comes between the proof and the
// record. From then on an open waits for a fetch.
Status Staging::evict_unused(const std::string& path, std::uint64_t ino, const Remote& remote) {
  close_unused(ino);
  const WriteLock lock(filesystem_.mutex_);
  const auto there = evictable_at(path, ino, remote);
  EFS_TRY(there);
  const auto shown = filesystem_.stat_of(**there);
  EFS_TRY(shown);
  // The record needs room in the journal, and gives much more.
  return filesystem_.commit_at_any_room(Evicted{.ino = ino,
                                                .atime = FileTime(shown->st_atim),
                                                .mtime = FileTime(shown->st_mtim),
                                                .ctime = FileTime(shown->st_ctim),
                                                .version = remote.version,
                                                .source = remote.source});
}

// A file that was removed meanwhile has lost its container, and a fetch that came first has emptied
// it by itself.
Result<std::uint64_t> Staging::free_evicted(std::span<const std::uint64_t> inos) {
  EFS_TRY(make_eviction_durable());
  std::uint64_t freed = 0;
  Status failed;
  for (const auto ino : inos) {
    const auto one = empty_evicted(ino);
    if (one) {
      freed += *one;
    } else if (one.error().code != ENOENT) {
      failed = std::unexpected(one.error());
    }
  }
  if (freed > 0) {
    filesystem_.backend_.look_again(false);
  }
  return failed ? Result<std::uint64_t>(freed) : std::unexpected(failed.error());
}

// The lock keeps a fetch from writing into a container that is about to be emptied.
Result<std::uint64_t> Staging::empty_evicted(std::uint64_t ino) {
  const MutexLock lock(filesystem_.emptying_);
  if (!filesystem_.is_full_remote(ino)) {
    return 0;
  }
  const auto file = open_any_container(ino);
  const auto before = file ? file->container->attributes() : std::unexpected(file.error());
  EFS_TRY(before);
  EFS_TRY(file->container->truncate(0));
  filesystem_.note_emptied(ino);
  return static_cast<std::uint64_t>(before->st_blocks) * 512;
}

Status Staging::make_eviction_durable() {
  return filesystem_.options_.rules.free_after_durable ? filesystem_.sync_journal() : Status();
}

bool Filesystem::make_room(std::uint64_t bytes) {
  RoomMaker* const maker = room_maker_;
  if (maker == nullptr) {
    return false;
  }
  slow_work_begins();
  return maker->make_room(bytes);
}

void Filesystem::keep_reserve() {
  RoomMaker* const maker = room_maker_;
  if (maker != nullptr) {
    slow_work_begins();
    maker->keep_reserve();
  }
}

bool Filesystem::is_full_remote(std::uint64_t ino) const {
  const ReadLock lock(mutex_);
  const Inode* inode = names_.find(ino);
  return inode != nullptr && inode->is_remote() && inode->extra->remote->is_full;
}

void Filesystem::note_emptied(std::uint64_t ino) {
  const WriteLock lock(mutex_);
  if (Inode* inode = names_.find(ino); inode != nullptr && inode->is_remote()) {
    inode->extra->remote->is_full = false;
  }
}

}  // namespace efs::fs
