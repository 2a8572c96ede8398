// SPDX-License-Identifier: BSD-3-Clause
#include "fs/filesystem.hpp"

namespace efs::fs {

Result<std::vector<Filesystem::DirectoryItem>> Filesystem::readdir(std::uint64_t ino,
                                                                   std::uint64_t cookie,
                                                                   std::size_t most) {
  if (cookie == 0 && options_.access_times != AccessTimes::kept) {
    touch_atime(ino);
  }
  ReadLock lock(mutex_);
  auto dir = directory(ino);
  if (!dir) {
    return std::unexpected(dir.error());
  }
  std::vector<DirectoryItem> items;
  if ((*dir)->nlink == 0) {
    return items;  // a removed directory does not even have "."
  }
  if (cookie < 1) {
    items.push_back({".", ino, S_IFDIR, 1});
  }
  if (cookie < 2) {
    items.push_back({"..", (*dir)->parent, S_IFDIR, 2});
  }
  const std::uint64_t before = cookie < Directory::first_cookie ? Directory::most_cookie : cookie;
  (*dir)->directory->for_each_before(before,
                                     [&](const std::string& name, const Directory::Entry& entry) {
                                       if (items.size() >= most) {
                                         return false;
                                       }
                                       items.push_back({name, entry.ino, 0, entry.cookie});
                                       return true;
                                     });
  for (auto& item : items) {
    if (item.type == 0) {
      const Inode& inode = *names_.find(item.ino);
      item.type = inode.mode & S_IFMT;
      item.known = inode.lookups > 0;
    }
  }
  return items;
}

// A load or unload may remove or replace the name after readdir(). It tells the kernel, which waits
// until it has taken over the entries of the reply.
Result<Entry> Filesystem::introduce(std::uint64_t ino) {
  ReadLock lock(mutex_);
  Inode* found = names_.find(ino);
  if (found == nullptr || found->nlink == 0) {
    return fail(ENOENT);
  }
  auto entry = entry_of(*found);
  if (entry) {
    entry->is_new = found->lookups++ == 0;
  }
  return entry;
}

// Writes a record only if the policy requires it: with relatime repeated reads of a directory cost
// nothing. If the journal is full the time stays unchanged, because reading must work on a full
// store.
void Filesystem::touch_atime(std::uint64_t ino) {
  const auto due = [this](const Inode* dir) {
    return dir != nullptr && dir->nlink > 0 &&
           atime_is_due(options_.access_times, dir->atime, dir->mtime, dir->ctime);
  };
  {
    ReadLock lock(mutex_);
    if (!due(names_.find(ino))) {
      return;
    }
  }
  WriteLock lock(mutex_);
  const Inode* dir = names_.find(ino);
  if (!due(dir)) {
    return;
  }
  SetAttributes record = attributes_of(*dir);
  record.atime = clock_.now();
  (void)commit(0, record);
}

}  // namespace efs::fs
