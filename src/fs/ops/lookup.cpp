// SPDX-License-Identifier: BSD-3-Clause
#include <unordered_set>

#include "fs/filesystem.hpp"

namespace efs::fs {

Result<Entry> Filesystem::lookup(std::uint64_t parent, const std::string& name) {
  ReadLock lock(mutex_);
  // "." of any inode: the kernel resolves a file handle this way (open_by_handle_at(2)).
  auto self = inode(parent);
  if (name == "." && self && (*self)->nlink == 0) {
    return fail(ENOENT);
  }
  auto dir = name == "." ? self : directory(parent);
  if (!dir) {
    return std::unexpected(dir.error());
  }
  if (name.size() > 255) {
    return fail(ENAMETOOLONG);
  }
  auto child = name == ".." ? inode((*dir)->parent) : name == "." ? dir : names_.child(**dir, name);
  if (!child) {
    return std::unexpected(child.error());
  }
  auto entry = entry_of(**child);
  if (entry) {
    entry->is_new = (*child)->lookups++ == 0;
  }
  return entry;
}

Filesystem::Forgotten Filesystem::forget(std::uint64_t ino, std::uint64_t count) {
  {
    // The usual case, an inode that stays, needs no exclusive lock.
    ReadLock lock(mutex_);
    Inode* found = names_.find(ino);
    if (found == nullptr || ino == root_ino) {
      return {};
    }
    if (found->inherited) {
      return {.gone = false, .ask = found->nlink == 0};
    }
    if (found->lookups.fetch_sub(count) != count || found->nlink > 0) {
      return {};
    }
  }
  return free_forgotten(ino, false);
}

Filesystem::Forgotten Filesystem::forget_all(std::uint64_t ino) {
  return free_forgotten(ino, true);
}

Filesystem::Forgotten Filesystem::free_forgotten(std::uint64_t ino, bool all) {
  {
    const Removing removing(removals_);
    Reaped reaped;
    {
      WriteLock lock(mutex_);
      Inode* found = names_.find(ino);
      if (all && (found == nullptr || found->nlink != 0)) {
        return {};
      }
      if (all) {
        found->lookups = 0;
      }
      reaped = reap(ino);
    }
    if (!reaped.gone) {
      return {};
    }
    remove_container(reaped);
  }
  free_removed_if(SpaceAccount::noticeable);
  return {.gone = true, .ask = false};
}

bool Filesystem::exists(std::uint64_t ino) const {
  ReadLock lock(mutex_);
  const Inode* found = names_.find(ino);
  return found != nullptr && !found->freed;
}

// The kernel knows every inode that had a name: it holds the directory's lock until it has the
// reply, and only the kernel removes names.
std::vector<std::uint64_t> Filesystem::inherited_orphans(bool told) const {
  ReadLock lock(mutex_);
  std::vector<std::uint64_t> found = names_.orphans();
  std::unordered_set<std::uint64_t> answered;
  if (told) {
    completed_requests_.for_each([&](std::uint64_t, std::uint64_t ino) { answered.insert(ino); });
  }
  std::erase_if(found, [&](std::uint64_t ino) {
    mutex_.assert_held_shared();
    const Inode& inode = *names_.find(ino);
    return !inode.inherited || (told && !inode.had_name && answered.contains(ino));
  });
  return found;
}

}  // namespace efs::fs
