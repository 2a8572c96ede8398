// SPDX-License-Identifier: BSD-3-Clause
// Results that leave the buffer although results-dir never had them (key `to-pfs`).
#include <algorithm>

#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/ledger_records.hpp"
#include "fs/removal_reserve.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {

/// One name of drop_unsent().
struct Staging::Unsent {
  const UnsentFile* file = nullptr;
  std::uint64_t parent = 0;
  std::string name;
  Filesystem::Reaped reaped{};
  bool is_removed = false;
};

bool Staging::is_only_here(const std::string& path, std::uint64_t ino) {
  const ReadLock lock(filesystem_.mutex_);
  const auto place = locate(path);
  const auto there = place ? filesystem_.names_.child(*place->parent, place->name)
                           : std::unexpected(place.error());
  return there && (*there)->ino == ino && is_only_here(**there, *place->parent, path);
}

// A class that a user has set (efs set) is a wish for this file.
bool Staging::is_only_here(const Inode& inode, const Inode& parent, const std::string& path) const {
  filesystem_.mutex_.assert_held_shared();
  if (!inode.is_regular() || inode.nlink != 1) {
    return false;
  }
  if (const auto& extra = inode.extra; extra && (extra->remote || extra->keep != Keep::by_rule)) {
    return false;
  }
  if (filesystem_.names_.files().find(inode.ino) != nullptr) {
    return false;
  }
  const auto& gone = filesystem_.names_.gone();
  if (const auto before = gone.find(path);
      before != gone.end() && !before->second.was_never_sent()) {
    return false;
  }
  const Inode* directory = filesystem_.names_.has_kept_directories() ? &parent : nullptr;
  while (directory != nullptr && (!directory->extra || directory->extra->keep == Keep::by_rule)) {
    directory = directory->ino == root_ino ? nullptr : filesystem_.names_.find(directory->parent);
  }
  return directory == nullptr;
}

Result<Staging::Unsent> Staging::unsent(const UnsentFile& file) {
  filesystem_.mutex_.assert_held();
  auto place = locate(file.path);
  if (!place) {
    return std::unexpected(place.error());
  }
  const auto there = filesystem_.names_.child(*place->parent, place->name);
  if (!there) {
    return fail(there.error().code, file.path + ": not in the buffer");
  }
  const Inode& inode = **there;
  if (inode.ino != file.ino) {
    return fail(ESTALE, "another file has this name by now");
  }
  if (file.edits && inode.edits != *file.edits) {
    return fail(EBUSY, "a program has opened it for writing since it was an old version");
  }
  if (!is_only_here(inode, *place->parent, file.path)) {
    return fail(EMLINK, "the PFS may have a file of this name, or it has further names or a class");
  }
  if (inode.is_open() || filesystem_.backend_.may_be_open(file.ino)) {
    return fail(EBUSY, "a program may have it open or mapped");
  }
  return Unsent{.file = &file, .parent = place->parent->ino, .name = std::move(place->name)};
}

// An open for writing needs the namespace lock to be counted.
Status Staging::check_unchanged(std::span<const UnchangedFile> newer) const {
  filesystem_.mutex_.assert_held();
  for (const auto& file : newer) {
    const auto there = inode_at(file.path);
    if (!there || (*there)->ino != file.ino || (*there)->edits != file.edits ||
        (*there)->write_opens > 0) {
      return fail(EBUSY, "a newer version has changed: " + file.path);
    }
  }
  return {};
}

// All records come before the first removal: whatever remains after a death in between, the receipt
// tells which files were to go.
Status Staging::remove_unsent(std::vector<Unsent>& leaving) {
  filesystem_.mutex_.assert_held();
  for (const auto& one : leaving) {
    const GoneInput never_sent{
        .type = S_IFREG,
        .origin = {.size = one.file->size, .mtime = one.file->mtime, .ctime = Origin::any_ctime},
        .saved = {},
        .target = {},
        .unloaded = true};
    EFS_TRY(filesystem_.commit(0, gone_record_of(one.file->path, never_sent)));
  }
  for (auto& one : leaving) {
    EFS_TRY(filesystem_.commit(
        0, Unlink{.parent = one.parent, .time = filesystem_.clock_.now(), .name = one.name},
        -removal_reserve(one.name)));
    one.reaped = filesystem_.withdraw(one.file->ino);
    one.is_removed = true;
  }
  return {};
}

Status Staging::drop_unsent(std::span<const UnsentFile> files,
                            std::span<const UnchangedFile> newer) {
  for (const auto& file : files) {
    close_unused(file.ino);
  }
  std::vector<Unsent> leaving;
  Status done;
  {
    const WriteLock lock(filesystem_.mutex_);
    EFS_TRY(check_unchanged(newer));
    for (const auto& file : files) {
      auto one = unsent(file);
      if (!one) {
        return std::unexpected(one.error());
      }
      leaving.push_back(std::move(*one));
    }
    done = remove_unsent(leaving);
  }
  for (const auto& one : leaving) {
    if (!one.is_removed) {
      continue;
    }
    filesystem_.remove_container(one.reaped);
    if (KernelView* kernel = filesystem_.kernel_) {
      if (one.reaped.gone) {
        kernel->let_go(one.file->ino);
      }
      kernel->name_removed(one.parent, one.name, one.file->ino, true);
    }
  }
  return done;
}

std::vector<DroppedResult> Staging::dropped() {
  const ReadLock lock(filesystem_.mutex_);
  std::vector<DroppedResult> dropped;
  for (const auto& [path, input] : filesystem_.names_.gone()) {
    const bool was_sent = !input.was_never_sent();
    if (input.unloaded && (!was_sent || input.saved) && S_ISREG(input.type) && is_missing(path)) {
      const Origin& version = was_sent ? *input.saved : input.origin;
      dropped.push_back(
          {.path = path, .size = version.size, .mtime = version.mtime, .was_sent = was_sent});
    }
  }
  return dropped;
}

}  // namespace efs::fs
