// SPDX-License-Identifier: BSD-3-Clause
// Persists clean files. The PFS has the content of a clean file, so efs syncs many files late and
// together. Until the sync is recorded (Settled), power loss takes the file, under any name.
#include <algorithm>

#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"

namespace efs::fs {
namespace {

constexpr std::uint64_t not_while_clean = ~std::uint64_t{0};  // above any real number of edits

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
    // A file that was opened for writing meanwhile may have unsynced content, even if an unload
    // made it clean again.
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

// R1: the data before the record that declares them durable.
Status Filesystem::sync_and_book(std::span<const Unsettled> clean) {
  if (options_.rules.settle_after_sync) {
    if (const Status synced = backend_.sync_all(); !synced) {
      // These files are never settled: the kernel reports the failure once, and the next sync would
      // succeed without the lost data. The PFS has them, so power loss may take them.
      record_failed_sync();
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
  add_unsynced(moved, replaces, synced, wanted);
  // Once: files that are loaded during the sync would delay the rename without limit.
  if (moved.is_directory() && synced.empty() && (!unsettled_.empty() || settling_ != 0)) {
    add_unsynced_below(moved, wanted);
  }
  return wanted;
}

void Filesystem::add_unsynced(const Inode& inode, bool anyway, std::span<const Unsettled> synced,
                              std::vector<Unsettled>& wanted) const {
  const auto clean = unsettled(inode);
  const bool done = std::any_of(synced.begin(), synced.end(), [&](const Unsettled& one) {
    return one.ino == inode.ino && (!clean || one.edits == clean->edits);
  });
  // A file that was dirty at the sync may have been written and unloaded since: record only files
  // that were clean.
  if (!done && (clean || (anyway && inode.is_regular() && !inode.settled))) {
    wanted.push_back(clean.value_or(Unsettled{inode.ino, not_while_clean}));
  }
}

void Filesystem::add_unsynced_below(const Inode& directory, std::vector<Unsettled>& wanted) const {
  std::vector<std::uint64_t> todo{directory.ino};
  for (std::size_t i = 0; i < todo.size(); ++i) {
    const Inode& inode = *names_.find(todo[i]);
    add_unsynced(inode, false, {}, wanted);
    if (!inode.is_directory()) {
      continue;
    }
    inode.directory->for_each_after(0, [&](const std::string&, const Directory::Entry& entry) {
      todo.push_back(entry.ino);
      return true;
    });
  }
}

Status Filesystem::secure(std::span<const std::uint64_t> inos) {
  // for more files one sync of all is cheaper, although it waits for other files
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
    // As in sync_and_book(): the kernel does not report this failure again, so waiting files are
    // never settled.
    record_failed_sync();
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
    EFS_TRY((*container)->sync(true));  // the times too: they identify a settled file
    EFS_TRY(backend_.sync_name(file.ino));
  }
  return {};
}

}  // namespace efs::fs
