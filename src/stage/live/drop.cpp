// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/drop.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <exception>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace efs::stage {
namespace {

/// True if the version of an export is known to the last detail. (A copy that another node may also
/// have exported has none.)
bool is_known(const fs::Origin& copy) {
  return copy.ctime != 0 && copy.ctime != fs::Origin::any_ctime;
}

/// True if the file is part of the version, also if the version does not list it. An input that the
/// job has not changed is not a result.
bool is_part_of(const config::JobConfig& config, const OldVersion& old, const fs::WalkItem& item) {
  const bool is_result = item.due_for_export() || item.pfs.saved || !item.pfs.origin;
  const auto name = is_result ? config::version_name(config, item.path) : std::nullopt;
  return name &&
         (name->directory.empty() ? name->name : name->directory + "/" + name->name) == old.path;
}

class Drop : LiveTransfer {
 public:
  explicit Drop(const LiveArguments& with) : LiveTransfer(with) {}

  void version(const OldVersion& old, Dropped& dropped) {
    if (const Status done = drop_files(old, dropped); !done) {
      dropped.stayed.push_back({.version = old.path, .file = at_, .why = done.error()});
    }
  }

 private:
  Status drop_files(const OldVersion& old, Dropped& dropped) {
    EFS_TRY(check_here(old));
    if (items_.size() > 1) {  // the removal of a single file checks that file anyway
      for (const auto& item : items_) {
        EFS_TRY(is_home(item));
      }
      EFS_TRY(check_here(old));  // again, because the PFS may be slow
    }
    for (const auto& item : items_) {
      EFS_TRY(is_home(item));
      if (&item == &items_.front()) {  // the last checks before anything is gone
        EFS_TRY(check_newer(old));
        EFS_TRY(check_directory(old));
        at_ = item.path;
      }
      EFS_TRY(staging_.drop_unused(item.path, item.ino, *item.pfs.saved));
      dropped.entries.push_back(receipt_entry(item, Action::kept, dropped_by_keep));
    }
    return {};
  }

  /// All checks that make no call to the PFS. Sets items_.
  Status check_here(const OldVersion& old) {
    items_.clear();
    for (const auto& file : old.files) {
      auto item = checked(file);
      if (!item) {
        return std::unexpected(item.error());
      }
      items_.push_back(std::move(*item));
    }
    EFS_TRY(check_newer(old));
    EFS_TRY(check_directory(old));
    for (const auto& item : items_) {
      at_ = item.path;
      EFS_TRY(staging_.check_unused(item.path, item.ino, *item.pfs.saved));
    }
    return {};
  }

  /// The item of a file that may be dropped.
  Result<fs::WalkItem> checked(const OldVersion::File& file) {
    at_ = file.path;
    if (progress_.cancel) {
      return fail(ECANCELED, "cancelled");
    }
    auto item = staging_.find(file.path);
    if (!item) {
      return fail(EBUSY, "a program has removed it");
    }
    if (item->ino != file.ino) {
      return fail(EBUSY, "another file has this name by now");
    }
    if (!S_ISREG(item->attributes.st_mode) || item->attributes.st_nlink != 1) {
      return fail(EMLINK, "it has further names, or is not a regular file");
    }
    if (!item->pfs.is_exported() || !item->pfs.parts.empty() || !item->content.unreadable.empty()) {
      return fail(EBUSY, "results-dir does not have its last version");
    }
    if (!is_known(*item->pfs.saved)) {
      return fail(ESTALE, "the version of its copy is not known");
    }
    return item;
  }

  Status check_newer(const OldVersion& old) {
    if (!old.newer) {
      return {};
    }
    for (const auto& file : *old.newer) {
      at_ = file.path;
      const auto item = staging_.find(file.path);
      if (!item || item->ino != file.ino || (item->due_for_export() && is_being_written(*item))) {
        return fail(EBUSY, "a newer version has changed");
      }
    }
    return {};
  }

  /// A directory stays while a program writes into it.
  Status check_directory(const OldVersion& old) {
    const auto top = staging_.find(old.path);
    if (!top || !S_ISDIR(top->attributes.st_mode)) {
      return {};
    }
    const auto items = staging_.walk(old.path);
    ++progress_.files_done;  // with many inodes a walk takes long
    if (!items) {
      return std::unexpected(items.error());
    }
    std::unordered_set<std::string_view> listed;
    for (const auto& file : old.files) {
      listed.insert(file.path);
    }
    for (const auto& item : *items) {
      if (!S_ISREG(item.attributes.st_mode) || listed.contains(item.path)) {
        continue;
      }
      at_ = item.path;
      if (is_part_of(config_, old, item) || is_being_written(item)) {
        return fail(EBUSY, "a program has changed the directory");
      }
    }
    return {};
  }

  bool is_being_written(const fs::WalkItem& item) {
    const auto writers = staging_.writers(item.ino);
    return !writers || writers->open > 0;
  }

  // The open makes a network file system look at the file anew, instead of what it remembers.
  Status is_home(const fs::WalkItem& item) {
    at_ = item.path;
    if (progress_.cancel) {
      return fail(ECANCELED, "cancelled");
    }
    const auto top = pfs_.open(no_directory, config_.results_dir, directory_flags);
    const auto file = top ? pfs_.open_beneath(*top, config::result_path(config_, item.path),
                                              O_RDONLY | O_NONBLOCK)
                          : std::unexpected(top.error());
    const auto now = file ? pfs_.fstat(*file) : std::unexpected(file.error());
    ++progress_.files_done;  // the PFS has answered
    if (!now) {
      return with_context(now.error(), "its copy in results-dir");
    }
    return S_ISREG(now->st_mode) &&
                   is_version(*item.pfs.saved, ledger::version_of(*now), ledger::Ctime::counts)
               ? Status()
               : fail(ESTALE, "results-dir has another version of it by now");
  }

  std::vector<fs::WalkItem> items_;  // of the version's files
  std::string at_;                   // the file that is looked at
};

}  // namespace

Dropped drop(const LiveArguments& with, const std::vector<OldVersion>& versions) {
  Dropped dropped;
  Drop drop(with);
  for (const auto& version : versions) {
    try {
      drop.version(version, dropped);
    } catch (const std::exception& exception) {
      dropped.stayed.push_back(
          {.version = version.path, .file = {}, .why = {EIO, exception.what(), true}});
    }
  }
  return dropped;
}

}  // namespace efs::stage
