// SPDX-License-Identifier: BSD-3-Clause
#include <linux/fs.h>

#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/removing.hpp"

namespace efs::fs {
namespace {

// The rules of rename(2) for replacing a target.
Status check_target(const Inode& source, const Inode& target, unsigned flags) {
  if ((flags & RENAME_NOREPLACE) != 0) {
    return fail(EEXIST);
  }
  if ((flags & RENAME_EXCHANGE) != 0) {
    return {};
  }
  if (source.is_directory() && !target.is_directory()) {
    return fail(ENOTDIR);
  }
  if (!source.is_directory() && target.is_directory()) {
    return fail(EISDIR);
  }
  if (target.is_directory() && !target.directory->empty()) {
    return fail(ENOTEMPTY);
  }
  return {};
}

}  // namespace

// R6, the checkpoint pattern: a file that replaces another must be as durable as the replaced one.
// Writes that race with the rename are not covered. A clean file that is not settled is also
// synced: power loss may take it because the PFS has it, but the PFS has it under the old name.
Status Filesystem::rename(const Caller& caller, std::uint64_t parent, const std::string& name,
                          std::uint64_t new_parent, const std::string& new_name, unsigned flags) {
  if ((flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0 ||
      flags == (RENAME_NOREPLACE | RENAME_EXCHANGE)) {
    return fail(EINVAL);
  }
  // Syncs without the lock, so that no other request waits. Syncs again if the name leads to
  // another file by then.
  std::vector<Unsettled> synced;
  while (true) {
    {
      const Removing removing(removing_);
      auto step = rename_unless_unsynced(caller, parent, name, new_parent, new_name, flags, synced);
      if (!step) {
        return std::unexpected(step.error());
      }
      synced = std::move(step->sync_first);
      if (synced.empty()) {
        remove_container(step->replaced);
      }
    }
    if (synced.empty()) {
      break;
    }
    EFS_TRY(sync_containers(synced));
  }
  free_removed_if(Room::noticeable);
  return {};
}

Result<Filesystem::RenameStep> Filesystem::rename_unless_unsynced(
    const Caller& caller, std::uint64_t parent, const std::string& name, std::uint64_t new_parent,
    const std::string& new_name, unsigned flags, std::span<const Unsettled> synced) {
  const Room::Level level = room_.level();
  WriteLock lock(mutex_);
  if (done_before(caller)) {
    return {};
  }
  auto from = directory(parent);
  auto to = directory(new_parent);
  if (!from) {
    return std::unexpected(from.error());
  }
  if (!to) {
    return std::unexpected(to.error());
  }
  auto source = names_.child(**from, name);
  if (!source) {
    return std::unexpected(source.error());
  }
  if (new_name.size() > 255) {
    return fail(ENAMETOOLONG);
  }
  if ((*to)->nlink == 0) {
    return fail(ENOENT);
  }
  const auto target = names_.child(**to, new_name);
  if (!target && (flags & RENAME_EXCHANGE) != 0) {
    return fail(ENOENT);
  }
  if ((*source)->is_directory() && names_.is_within(new_parent, (*source)->ino)) {
    return fail(EINVAL);
  }
  if (target && (flags & RENAME_EXCHANGE) != 0 && (*target)->is_directory() &&
      names_.is_within(parent, (*target)->ino)) {
    return fail(EINVAL);
  }
  // two names of one file: no change
  if (target && *target == *source && (flags & RENAME_NOREPLACE) == 0) {
    return RenameStep{};
  }
  if (target) {
    EFS_TRY(check_target(**source, **target, flags));
  }

  auto first = unsynced(**source, target.has_value(), synced);
  if (target && (flags & RENAME_EXCHANGE) != 0) {
    const auto other = unsynced(**target, true, synced);
    first.insert(first.end(), other.begin(), other.end());
  }
  if (!first.empty()) {
    return RenameStep{.sync_first = std::move(first), .replaced = {}};
  }
  EFS_TRY(book_settled(synced));

  const std::uint64_t replaced = target && (flags & RENAME_EXCHANGE) == 0 ? (*target)->ino : 0;
  const auto size_of = [](const std::string& text) {
    return static_cast<std::int64_t>(store::Journal::record_size(text.size() + 32));
  };
  const std::int64_t reserve =
      (flags & RENAME_EXCHANGE) != 0 ? 0 : (replaced != 0 ? 0 : size_of(new_name)) - size_of(name);
  EFS_TRY(commit(caller.request,
                 Rename{.parent = parent,
                        .new_parent = new_parent,
                        .flags = flags & RENAME_EXCHANGE,
                        .time = clock_.now(),
                        .name = name,
                        .new_name = new_name},
                 reserve));
  return RenameStep{.sync_first = {},
                    .replaced = replaced != 0 ? reap_unnamed(replaced, level) : Reaped{}};
}

}  // namespace efs::fs
