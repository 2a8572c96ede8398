#include "fs/filesystem.hpp"

namespace efs::fs {

Result<Entry> Filesystem::lookup(std::uint64_t parent, const std::string& name) {
  ReadLock lock(mutex_);
  // "." of any inode: how the kernel finds the one of a file handle again (open_by_handle_at(2)).
  auto self = inode(parent);
  if (name == "." && self && (*self)->nlink == 0) return fail(ENOENT);
  auto dir = name == "." ? self : directory(parent);
  if (!dir) return std::unexpected(dir.error());
  if (name.size() > 255) return fail(ENAMETOOLONG);
  auto child = name == ".." ? inode((*dir)->parent) : name == "." ? dir : names_.child(**dir, name);
  if (!child) return std::unexpected(child.error());
  auto entry = entry_of(**child);
  if (entry) ++(*child)->lookups;
  return entry;
}

bool Filesystem::forget(std::uint64_t ino, std::uint64_t count) {
  {
    // The usual case, an inode that lives on, needs no exclusive lock.
    ReadLock lock(mutex_);
    Inode* found = names_.find(ino);
    if (found == nullptr || ino == root_ino) return false;
    if (found->lookups.fetch_sub(count) != count) return false;
  }
  WriteLock lock(mutex_);
  return reap(ino);
}

}  // namespace efs::fs
