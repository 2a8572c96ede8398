#include "fs/filesystem.hpp"

namespace efs::fs {

Result<Entry> Filesystem::lookup(std::uint64_t parent, const std::string& name) {
  ReadLock lock(mutex_);
  auto dir = directory(parent);
  if (!dir) return std::unexpected(dir.error());
  if (name.size() > 255) return fail(ENAMETOOLONG);
  auto child = name == ".." ? inode((*dir)->parent) : name == "." ? dir : names_.child(**dir, name);
  if (!child) return std::unexpected(child.error());
  auto entry = entry_of(**child);
  if (entry) ++(*child)->lookups;
  return entry;
}

std::optional<std::uint64_t> Filesystem::forget(std::uint64_t ino, std::uint64_t count) {
  {
    // The usual case, an inode that lives on, needs no exclusive lock.
    ReadLock lock(mutex_);
    Inode* found = names_.find(ino);
    if (found == nullptr || ino == root_ino) return std::nullopt;
    if (found->lookups.fetch_sub(count) != count || found->nlink > 0) return std::nullopt;
  }
  Reaped reaped;
  {
    WriteLock lock(mutex_);
    reaped = reap(ino);
  }
  if (!reaped.gone) return std::nullopt;
  return remove_container(reaped);
}

}  // namespace efs::fs
