// SPDX-License-Identifier: BSD-3-Clause
#include "fs/filesystem.hpp"

namespace efs::fs {

// Syncs a clean file that is not settled first: power loss would take the new name with the file,
// and a stage-in restores only the old name.
Result<Entry> Filesystem::link(const Caller& caller, std::uint64_t ino, std::uint64_t new_parent,
                               const std::string& new_name) {
  std::vector<Unsettled> synced;
  while (true) {
    {
      WriteLock lock(mutex_);
      if (done_before(caller)) {
        return referenced(ino);
      }
      auto dir = directory(new_parent);
      if (!dir) {
        return std::unexpected(dir.error());
      }
      auto source = inode(ino);
      if (!source) {
        return std::unexpected(source.error());
      }
      if ((*source)->is_directory()) {
        return fail(EPERM);
      }
      if ((*source)->freed) {
        return fail(ENOENT);
      }
      // nlink 0 is valid: the kernel passes only O_TMPFILE files without a name.
      EFS_TRY(check_new_name(**dir, new_name));
      auto first = unsynced(**source, false, synced);
      if (first.empty()) {
        EFS_TRY(book_settled(synced));
        EFS_TRY(
            commit(caller.request,
                   Link{.ino = ino, .parent = new_parent, .time = clock_.now(), .name = new_name},
                   static_cast<std::int64_t>(store::Journal::record_size(new_name.size() + 32))));
        return referenced(ino);
      }
      synced = std::move(first);
    }
    EFS_TRY(sync_containers(synced));
  }
}

}  // namespace efs::fs
