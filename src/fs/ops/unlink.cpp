// SPDX-License-Identifier: BSD-3-Clause
#include "fs/filesystem.hpp"
#include "fs/removal_reserve.hpp"

namespace efs::fs {

// Common to unlink and rmdir. R3: the space is freed only after the record is in the journal and
// when no program can reach the file: see reap_unnamed(). Otherwise forget() frees it.
Status Filesystem::remove_name(const Caller& caller, const NameIn& at, bool directories,
                               std::uint64_t only) {
  const auto& [parent, name] = at;
  const SpaceAccount::Level level = space_.level();
  Reaped reaped;
  {
    const Removing removing(removals_);
    {
      WriteLock lock(mutex_);
      if (done_before(caller)) {
        return {};
      }
      auto dir = directory(parent);
      if (!dir) {
        return std::unexpected(dir.error());
      }
      auto child = names_.child(**dir, name);
      if (!child) {
        return std::unexpected(child.error());
      }
      const Inode& inode = **child;
      if (only != 0 && inode.ino != only) {
        return fail(ESTALE);
      }
      if (inode.is_directory() != directories) {
        return fail(directories ? ENOTDIR : EISDIR);
      }
      if (directories && !inode.directory->empty()) {
        return fail(ENOTEMPTY);
      }
      const std::uint64_t ino = inode.ino;
      const auto reserve = -removal_reserve(name);
      EFS_TRY(commit(caller.request, Unlink{.parent = parent, .time = clock_.now(), .name = name},
                     reserve));
      reaped = reap_unnamed(ino, level);
    }
    remove_container(reaped);
  }
  reap_when_released(reaped.open, level);
  free_removed_if(SpaceAccount::noticeable);
  return {};
}

Status Filesystem::unlink(const Caller& caller, std::uint64_t parent, const std::string& name) {
  return remove_name(caller, {parent, name}, false);
}

Status Filesystem::unlink_only(std::uint64_t parent, const std::string& name, std::uint64_t ino) {
  return remove_name({}, {parent, name}, false, ino);
}

Status Filesystem::rmdir(const Caller& caller, std::uint64_t parent, const std::string& name) {
  return remove_name(caller, {parent, name}, true);
}

}  // namespace efs::fs
