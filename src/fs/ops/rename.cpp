// SPDX-License-Identifier: BSD-3-Clause
#include <linux/fs.h>

#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/removal_reserve.hpp"

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

/// The arguments of rename(). Valid during that call.
struct Filesystem::RenameCall {
  const Caller& caller;
  std::uint64_t parent;
  const std::string& name;
  std::uint64_t new_parent;
  const std::string& new_name;
  unsigned flags;
  SpaceAccount::Level level;  // before the call

  bool exchanges() const { return (flags & RENAME_EXCHANGE) != 0; }
};

// R6, the checkpoint pattern: a file that replaces another must be as durable as the replaced one.
// Writes that race with the rename are not covered. A clean file that is not settled is also
// synced: power loss may take it because the PFS has it, but the PFS has it under the old name.
Status Filesystem::rename(const Caller& caller, const NameIn& from, const NameIn& to,
                          unsigned flags) {
  if ((flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0 ||
      flags == (RENAME_NOREPLACE | RENAME_EXCHANGE)) {
    return fail(EINVAL);
  }
  const RenameCall call{.caller = caller,
                        .parent = from.parent,
                        .name = from.name,
                        .new_parent = to.parent,
                        .new_name = to.name,
                        .flags = flags,
                        .level = space_.level()};
  // Syncs without the lock, so that no other request waits. Syncs again if the name leads to
  // another file by then.
  std::vector<Unsettled> synced;
  while (true) {
    std::uint64_t open = 0;
    {
      const Removing removing(removals_);
      auto step = rename_unless_unsynced(call, synced);
      if (!step) {
        return std::unexpected(step.error());
      }
      synced = std::move(step->sync_first);
      if (synced.empty()) {
        remove_container(step->replaced);
        open = step->replaced.open;
      }
    }
    if (synced.empty()) {
      reap_when_released(open, call.level);
      break;
    }
    EFS_TRY(sync_containers(synced));
  }
  free_removed_if(SpaceAccount::noticeable);
  return {};
}

// A directory cannot move below itself.
Status Filesystem::check_no_loop(const RenameCall& call, const Inode& source,
                                 const Inode* target) const {
  if (source.is_directory() && names_.is_within(call.new_parent, source.ino)) {
    return fail(EINVAL);
  }
  if (target != nullptr && call.exchanges() && target->is_directory() &&
      names_.is_within(call.parent, target->ino)) {
    return fail(EINVAL);
  }
  return {};
}

Result<Filesystem::RenamePair> Filesystem::find_renamed(const RenameCall& call) const {
  auto from = directory(call.parent);
  auto to = directory(call.new_parent);
  if (!from) {
    return std::unexpected(from.error());
  }
  if (!to) {
    return std::unexpected(to.error());
  }
  auto source = names_.child(**from, call.name);
  if (!source) {
    return std::unexpected(source.error());
  }
  if (call.new_name.size() > 255) {
    return fail(ENAMETOOLONG);
  }
  if ((*to)->nlink == 0) {
    return fail(ENOENT);
  }
  const auto target = names_.child(**to, call.new_name);
  if (!target && call.exchanges()) {
    return fail(ENOENT);
  }
  const RenamePair pair{.source = *source, .target = target ? *target : nullptr};
  EFS_TRY(check_no_loop(call, *pair.source, pair.target));
  return pair;
}

std::vector<Filesystem::Unsettled> Filesystem::unsynced_by_rename(
    const RenameCall& call, const RenamePair& pair, std::span<const Unsettled> synced) const {
  auto first = unsynced(*pair.source, pair.target != nullptr, synced);
  if (pair.target != nullptr && call.exchanges()) {
    const auto other = unsynced(*pair.target, true, synced);
    first.insert(first.end(), other.begin(), other.end());
  }
  return first;
}

Result<Filesystem::RenameStep> Filesystem::rename_unless_unsynced(
    const RenameCall& call, std::span<const Unsettled> synced) {
  WriteLock lock(mutex_);
  if (done_before(call.caller)) {
    return {};
  }
  const auto pair = find_renamed(call);
  if (!pair) {
    return std::unexpected(pair.error());
  }
  // two names of one file: no change
  if (pair->target == pair->source && (call.flags & RENAME_NOREPLACE) == 0) {
    return RenameStep{};
  }
  if (pair->target != nullptr) {
    EFS_TRY(check_target(*pair->source, *pair->target, call.flags));
  }
  const Rename record{.parent = call.parent,
                      .new_parent = call.new_parent,
                      .flags = call.flags & RENAME_EXCHANGE,
                      .time = clock_.now(),
                      .name = call.name,
                      .new_name = call.new_name};
  EFS_TRY(refuse_remote(record));  // before any sync
  auto first = unsynced_by_rename(call, *pair, synced);
  if (!first.empty()) {
    return RenameStep{.sync_first = std::move(first), .replaced = {}};
  }
  EFS_TRY(book_settled(synced));

  const std::uint64_t replaced =
      pair->target != nullptr && !call.exchanges() ? pair->target->ino : 0;
  EFS_TRY(commit(call.caller.request, record, change_of_reserve(call, replaced != 0)));
  return RenameStep{.sync_first = {},
                    .replaced = replaced != 0 ? reap_unnamed(replaced, call.level) : Reaped{}};
}

std::int64_t Filesystem::change_of_reserve(const RenameCall& call, bool replaces) {
  if (call.exchanges()) {
    return 0;
  }
  return (replaces ? 0 : removal_reserve(call.new_name)) - removal_reserve(call.name);
}

}  // namespace efs::fs
