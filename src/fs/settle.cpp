// Clean files and the medium. The PFS has what a clean file holds, so its content is synced late
// and for many at once; until that is booked (Settled) power loss takes the file, under whatever
// name.
#include <algorithm>

#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"

namespace efs::fs {
namespace {

constexpr std::uint64_t not_while_clean = ~std::uint64_t{0};  // no inode has so many edits

}  // namespace

std::optional<Filesystem::Unsettled> Filesystem::unsettled(const Inode& inode) const {
  if (!inode.is_regular() || inode.dirty || inode.settled ||
      backend_.durability() == Durability::volatile_memory) {
    return std::nullopt;
  }
  return Unsettled{inode.ino, inode.edits};
}

Status Filesystem::book_settled(std::span<const Unsettled> synced) {
  Settled record;
  for (const auto& one : synced) {
    const Inode* inode = names_.find(one.ino);
    // Who was opened for writing meanwhile may hold what was not synced, also where an unload made
    // it clean again.
    if (inode == nullptr || inode->dirty || inode->settled ||
        (inode->edits != one.edits && options_.rules.book_unchanged)) {
      continue;
    }
    record.inodes.append(reinterpret_cast<const char*>(&one.ino), sizeof one.ino);
  }
  return record.inodes.empty() ? Status{} : commit(0, record);
}

Status Filesystem::settle() {
  std::vector<Unsettled> clean;
  {
    WriteLock lock(mutex_);
    clean.reserve(unsettled_.size());
    for (const auto ino : unsettled_) {
      if (const Inode* inode = names_.find(ino)) {
        if (const auto one = unsettled(*inode)) {
          clean.push_back(*one);
        }
      }
    }
    unsettled_.clear();
    if (clean.empty()) {
      return {};
    }
    ++settling_;
  }
  const Status done = sync_and_book(clean);
  {
    WriteLock lock(mutex_);
    --settling_;
  }
  return done ? sync_journal() : done;
}

// R1: the data before the record that says they are there.
Status Filesystem::sync_and_book(std::span<const Unsettled> clean) {
  if (options_.rules.settle_after_sync) {
    if (const Status synced = backend_.sync_all(); !synced) {
      // These are never settled: the failure was told once, and the next sync would succeed without
      // what was lost. The PFS has them, so power loss may take them.
      note_failed_sync();
      return synced;
    }
  }
  constexpr std::size_t most = 8192;  // inodes per record
  for (std::size_t at = 0; at < clean.size(); at += most) {
    WriteLock lock(mutex_);
    EFS_TRY(book_settled(clean.subspan(at, std::min(most, clean.size() - at))));
  }
  return {};
}

std::vector<Filesystem::Unsettled> Filesystem::unsynced(const Inode& moved, bool replaces,
                                                        std::span<const Unsettled> synced) const {
  std::vector<Unsettled> wanted;
  if (backend_.durability() == Durability::volatile_memory || !options_.rules.sync_before_replace) {
    return wanted;
  }
  const auto look_at = [&](const Inode& inode, bool anyway) EFS_REQUIRES(mutex_) {
    const auto clean = unsettled(inode);
    const bool done = std::any_of(synced.begin(), synced.end(), [&](const Unsettled& one) {
      return one.ino == inode.ino && (!clean || one.edits == clean->edits);
    });
    // What was dirty when it was synced may have been written to and unloaded since: booked is only
    // what was clean.
    if (!done && (clean || (anyway && inode.is_regular() && !inode.settled))) {
      wanted.push_back(clean.value_or(Unsettled{inode.ino, not_while_clean}));
    }
  };
  look_at(moved, replaces);
  // Once: what is loaded into it while we sync would hold up the rename for ever.
  if (!moved.is_directory() || !synced.empty() || (unsettled_.empty() && settling_ == 0)) {
    return wanted;
  }
  std::vector<std::uint64_t> todo{moved.ino};
  for (std::size_t i = 0; i < todo.size(); ++i) {
    const Inode& inode = *names_.find(todo[i]);
    look_at(inode, false);
    if (!inode.is_directory()) {
      continue;
    }
    inode.directory->for_each_after(0, [&](const std::string&, const Directory::Entry& entry) {
      todo.push_back(entry.ino);
      return true;
    });
  }
  return wanted;
}

Status Filesystem::secure(std::span<const std::uint64_t> inos) {
  // of more one sync of all is cheaper, though it waits for other files' content
  constexpr std::size_t few = 16;
  if (backend_.durability() == Durability::volatile_memory || inos.empty()) {
    return {};
  }
  if (inos.size() <= few) {
    std::vector<Unsettled> files;
    std::ranges::transform(inos, std::back_inserter(files),
                           [](std::uint64_t ino) { return Unsettled{ino, not_while_clean}; });
    EFS_TRY(sync_containers(files));
  } else if (const Status synced = backend_.sync_all(); !synced) {
    // As in sync_and_book(): nobody is told of this failure again, so what waits to be settled
    // never is.
    note_failed_sync();
    WriteLock lock(mutex_);
    unsettled_.clear();
    return synced;
  }
  return sync_journal();
}

Status Filesystem::sync_containers(std::span<const Unsettled> files) {
  slow_work_begins();
  for (const auto& file : files) {
    auto container = backend_.open(file.ino);
    if (!container && container.error().code == ENOENT) {
      continue;  // removed meanwhile
    }
    if (!container) {
      return std::unexpected(container.error());
    }
    EFS_TRY((*container)->sync(true));  // the times, too: by them a settled file is known
    EFS_TRY(backend_.sync_name(file.ino));
  }
  return {};
}

}  // namespace efs::fs
