// SPDX-License-Identifier: BSD-3-Clause
// Files whose content is not here: the checks that keep every other part from their containers.
#include <linux/fs.h>

#include <algorithm>

#include "fs/filesystem.hpp"

namespace efs::fs {
namespace {

// The remote file that the record would change, by its number; 0: none. Names are another matter.
struct ChangedContent {
  std::uint64_t operator()(const SetAttributes& r) const { return r.ino; }

  // before it gets its name, a file gets its extended attributes
  std::uint64_t operator()(const SetXattr& r) const { return r.ino; }

  std::uint64_t operator()(const RemoveXattr& r) const { return r.ino; }

  std::uint64_t operator()(const SetContent& r) const { return r.ino; }

  std::uint64_t operator()(const LostWrites& r) const { return r.ino; }

  std::uint64_t operator()(const Link& r) const { return r.ino; }

  std::uint64_t operator()(const Replace& r) const { return r.ino; }

  std::uint64_t operator()(const SetStaging& r) const { return r.dirty != 0 ? r.ino : 0; }

  std::uint64_t operator()(const auto&) const { return 0; }
};

}  // namespace

std::unexpected<Error> not_here() {
  return fail(not_here_code, "its content is not here: only the PFS has it");
}

Status Filesystem::check_here(std::uint64_t ino) const {
  return has_remote_ && is_remote(ino) ? Status(not_here()) : Status();
}

Status Filesystem::leaves_room(std::uint64_t bytes, std::uint64_t own) const {
  if (!has_remote_) {
    return {};
  }
  std::uint64_t reserved = 0;
  {
    const ReadLock lock(mutex_);
    reserved = reserved_room();
  }
  reserved -= std::min(reserved, own);
  const std::uint64_t available = backend_.space().available;
  return reserved + bytes <= available
             ? Status()
             : fail(ENOSPC, "the rest is reserved for inputs whose contents are not here yet");
}

bool Filesystem::is_remote(std::uint64_t ino) const {
  const ReadLock lock(mutex_);
  const Inode* inode = names_.find(ino);
  return inode != nullptr && inode->is_remote();
}

// The blocks are those of a file without holes: some programs take a file without blocks for a
// hole, and do not open it.
struct stat Filesystem::remote_stat_of(const Inode& inode) {
  struct stat st{};
  const std::uint64_t size = inode.extra->remote->version.size;
  st.st_size = static_cast<off_t>(size);
  st.st_blocks = static_cast<blkcnt_t>(size / 512 + (size % 512 != 0 ? 1 : 0));
  st.st_atim = to_timespec(inode.atime);
  st.st_mtim = to_timespec(inode.mtime);
  st.st_ctim = to_timespec(inode.ctime);
  return st;
}

Status Filesystem::refuse_remote(const Record& record) const {
  if (names_.remote_files() == 0) {
    return {};
  }
  const Inode* changed = names_.find(std::visit(ChangedContent{}, record));
  const bool changes =
      changed != nullptr && changed->is_remote() && changed->ino != being_published_;
  const auto* renamed = std::get_if<Rename>(&record);
  return changes || (renamed != nullptr && moves_remote(*renamed)) ? Status(not_here()) : Status();
}

bool Filesystem::moves_remote(const Rename& record) const {
  const auto moves = [this](std::uint64_t parent, const std::string& name) EFS_REQUIRES(mutex_) {
    const Inode* directory = names_.find(parent);
    const auto moved =
        directory != nullptr ? names_.child(*directory, name) : Result<Inode*>(fail(ENOENT));
    if (!moved) {
      return false;
    }
    return (*moved)->is_directory() ? !names_.remote_below(**moved, true).empty()
                                    : (*moved)->is_remote();
  };
  return moves(record.parent, record.name) ||
         ((record.flags & RENAME_EXCHANGE) != 0 && moves(record.new_parent, record.new_name));
}

std::vector<std::uint64_t> Filesystem::remote_in_rename(const NameIn& from, const NameIn& to,
                                                        unsigned flags) const {
  const ReadLock lock(mutex_);
  std::vector<std::uint64_t> found;
  const auto add = [&](const NameIn& at) EFS_REQUIRES_SHARED(mutex_) {
    const Inode* directory = names_.find(at.parent);
    const auto moved =
        directory != nullptr ? names_.child(*directory, at.name) : Result<Inode*>(fail(ENOENT));
    if (!moved) {
      return;
    }
    if ((*moved)->is_directory()) {
      std::ranges::copy(names_.remote_below(**moved), std::back_inserter(found));
    } else if ((*moved)->is_remote()) {
      found.push_back((*moved)->ino);
    }
  };
  add(from);
  if ((flags & RENAME_EXCHANGE) != 0) {
    add(to);
  }
  return found;
}

// Those that are here count, too: they may leave while others come.
bool Filesystem::fit_at_once(const NameIn& from, const NameIn& to, unsigned flags) const {
  const ReadLock lock(mutex_);
  std::uint64_t bytes = 0;
  const auto add = [&](const NameIn& at) EFS_REQUIRES_SHARED(mutex_) {
    const Inode* directory = names_.find(at.parent);
    const auto moved =
        directory != nullptr ? names_.child(*directory, at.name) : Result<Inode*>(fail(ENOENT));
    bytes += moved && (*moved)->is_directory() ? names_.evictable_bytes_below(**moved) : 0;
  };
  add(from);
  if ((flags & RENAME_EXCHANGE) != 0) {
    add(to);
  }
  return bytes == 0 || bytes <= backend_.space().capacity / 2;
}

}  // namespace efs::fs
