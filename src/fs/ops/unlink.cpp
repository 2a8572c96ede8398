#include "fs/filesystem.hpp"

namespace efs::fs {

// Common to unlink and rmdir. R3: the space is free for others only after the record is in the journal, and only
// when the kernel holds no reference any more (else forget() frees it).
Result<Filesystem::Reaped> Filesystem::remove_name(const Caller& caller, const Inode& parent, const std::string& name) {
  const std::uint64_t ino = parent.directory->find(name)->ino;
  const auto reserve = -static_cast<std::int64_t>(store::Journal::record_size(name.size() + 32));
  EFS_TRY(commit(caller.request, Unlink{.parent = parent.ino, .time = file_time_now(), .name = name}, reserve));
  return reap(ino);
}

Status Filesystem::unlink(const Caller& caller, std::uint64_t parent, const std::string& name) {
  Result<Reaped> reaped;
  {
    WriteLock lock(mutex_);
    if (done_before(caller)) return {};
    auto dir = directory(parent);
    if (!dir) return std::unexpected(dir.error());
    auto child = names_.child(**dir, name);
    if (!child) return std::unexpected(child.error());
    if ((*child)->is_directory()) return fail(EISDIR);
    reaped = remove_name(caller, **dir, name);
  }
  if (!reaped) return std::unexpected(reaped.error());
  remove_container(*reaped);
  return {};
}

Status Filesystem::rmdir(const Caller& caller, std::uint64_t parent, const std::string& name) {
  Result<Reaped> reaped;
  {
    WriteLock lock(mutex_);
    if (done_before(caller)) return {};
    auto dir = directory(parent);
    if (!dir) return std::unexpected(dir.error());
    auto child = names_.child(**dir, name);
    if (!child) return std::unexpected(child.error());
    if (!(*child)->is_directory()) return fail(ENOTDIR);
    if (!(*child)->directory->empty()) return fail(ENOTEMPTY);
    reaped = remove_name(caller, **dir, name);
  }
  if (!reaped) return std::unexpected(reaped.error());
  remove_container(*reaped);
  return {};
}

}  // namespace efs::fs
