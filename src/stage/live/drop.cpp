// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/drop.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "stage/export/selection.hpp"

namespace efs::stage {
namespace {

/// True if the version of an export is known to the last detail. (A copy that another node may also
/// have exported has none.)
bool is_known(const fs::Origin& copy) {
  return copy.ctime != 0 && copy.ctime != fs::Origin::any_ctime;
}

std::string path_of(const config::VersionName& version) {
  return version.directory.empty() ? version.name : version.directory + "/" + version.name;
}

/// True if the file is part of the version, also if the version does not list it. An input that the
/// job has not changed is not a result.
bool is_part_of(const config::JobConfig& config, const OldVersion& old, const fs::WalkItem& item) {
  const bool is_result = item.due_for_export() || item.pfs.saved || !item.pfs.origin;
  const auto name = is_result ? config::version_name(config, item.path) : std::nullopt;
  return name && path_of(*name) == old.path;
}

class Drop : LiveTransfer {
 public:
  explicit Drop(const LiveArguments& with) : LiveTransfer(with) {}

  void version(const OldVersion& old, Dropped& dropped) {
    const Status done = old.is_unsent ? drop_unsent(old, dropped) : drop_files(old, dropped);
    if (!done) {
      dropped.stayed.push_back({.version = old.path, .file = at_, .why = done.error()});
    }
  }

 private:
  /// The last proof and the removal of all files are one step.
  Status drop_unsent(const OldVersion& old, Dropped& dropped) {
    EFS_TRY(check_unsent(old));
    const auto newer = secured(old);
    dropped.has_failed_sync = dropped.has_failed_sync || has_failed_sync_;
    if (!newer) {
      return std::unexpected(newer.error());
    }
    EFS_TRY(check_directory(old));
    std::vector<fs::Staging::UnsentFile> files;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const auto& item = items_[i];
      files.push_back({.path = item.path,
                       .ino = item.ino,
                       .size = static_cast<std::uint64_t>(item.attributes.st_size),
                       .mtime = to_ns(item.attributes.st_mtim),
                       .edits = old.files[i].edits});
    }
    at_ = old.path;
    EFS_TRY(staging_.drop_unsent(files, *newer));
    for (const auto& item : items_) {
      dropped.entries.push_back(receipt_entry(item, Action::dropped, stage::dropped_unsent));
    }
    return {};
  }

  /// Sets items_. A name that an input had is a matter of the stop.
  Status check_unsent(const OldVersion& old) {
    std::vector<std::string> paths;
    for (const auto& file : old.files) {
      paths.push_back(file.path);
    }
    at_ = old.path;
    auto items = staging_.look(paths);
    if (!items) {
      return std::unexpected(items.error());
    }
    if (items->size() != paths.size() || !old.newer || old.newer->empty()) {
      return fail(EBUSY, "a program has removed a file of it");
    }
    items_ = std::move(*items);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const auto& item = items_[i];
      at_ = item.path;
      if (progress_.cancel) {
        return fail(ECANCELED, "cancelled");
      }
      if (item.ino != old.files[i].ino) {
        return fail(EBUSY, "another file has this name by now");
      }
      if (item.pfs.replaced || item.pfs.origin || !staging_.is_only_here(item.path, item.ino)) {
        return fail(EMLINK,
                    "the PFS may have a file of this name, or it has further names or a "
                    "class");
      }
      if (!item.content.unreadable.empty()) {
        return fail(EIO, item.content.unreadable);
      }
    }
    return check_directory(old);
  }

  /// The files of the newer versions, whole and synced, in the state in which they must be when
  /// this version goes.
  Result<std::vector<fs::Staging::UnchangedFile>> secured(const OldVersion& old) {
    std::vector<fs::Staging::UnchangedFile> newer;
    std::vector<std::uint64_t> inos;
    for (const auto& file : *old.newer) {
      at_ = file.path;
      const auto item = staging_.find(file.path);
      const auto writers = staging_.writers(file.ino);
      if (!item || item->ino != file.ino || !writers || writers->possible) {
        return fail(EBUSY, "a newer version has changed, or a program may write to it");
      }
      if (!item->content.unreadable.empty() || !item->pfs.parts.empty()) {
        return fail(EIO, "a newer version is not whole: " + item->content.unreadable);
      }
      if (class_of(config_, *item) == config::FileClass::temporary) {
        return fail(EBUSY, "a newer version is temporary");
      }
      newer.push_back({.path = file.path, .ino = file.ino, .edits = writers->edits});
      inos.push_back(file.ino);
    }
    if (progress_.cancel) {
      return fail(ECANCELED, "cancelled");
    }
    if (const Status synced = staging_.secure(inos); !synced) {
      has_failed_sync_ = true;
      return std::unexpected(synced.error());
    }
    ++progress_.files_done;  // it may take long
    EFS_TRY(check_directories_of_newer(old));
    return newer;
  }

  /// A file that the list of newer ones lacks may be one that a program is writing.
  Status check_directories_of_newer(const OldVersion& old) {
    std::map<std::string, std::vector<OldVersion::File>> versions;  // by path
    for (const auto& file : *old.newer) {
      if (const auto name = config::version_name(config_, file.path)) {
        versions[path_of(*name)].push_back(file);
      }
    }
    for (auto& [path, files] : versions) {
      EFS_TRY(check_directory({.path = path, .files = std::move(files)}));
    }
    return {};
  }

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
  bool has_failed_sync_ = false;
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

void add_dropped(Receipt& receipt, const std::vector<fs::DroppedResult>& dropped, bool with_sent) {
  std::map<std::string_view, std::size_t> known;
  for (std::size_t i = 0; i < receipt.entries.size(); ++i) {
    known.emplace(receipt.entries[i].path, i);
  }
  std::vector<ReceiptEntry> more;
  for (const auto& file : dropped) {
    const auto found = known.find(file.path);
    if (found != known.end() && !file.was_sent) {
      std::string& reason = receipt.entries[found->second].reason;
      reason += (reason.empty() ? "" : "; ") + std::string("a later version: ") + dropped_unsent;
    }
    if (found != known.end() || (file.was_sent && !with_sent)) {
      continue;
    }
    ReceiptEntry entry;
    entry.path = file.path;
    entry.action = file.was_sent ? Action::kept : Action::dropped;
    entry.bytes = file.size;
    entry.mtime = file.mtime;
    entry.reason = file.was_sent ? std::string(unloaded_early) + ": " + removed_from_buffer
                                 : std::string(dropped_unsent);
    more.push_back(std::move(entry));
  }
  if (!dropped.empty()) {
    std::ranges::move(more, std::back_inserter(receipt.entries));
    settle(receipt);
  }
}

}  // namespace efs::stage
