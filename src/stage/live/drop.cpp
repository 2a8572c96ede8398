// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/drop.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "stage/export/selection.hpp"

namespace efs::stage {
namespace {

/// True if the version of an export is known to the last detail. (A copy that another node may also
/// have exported has none.)
bool is_known(const fs::Origin& copy) {
  return copy.ctime != 0 && copy.ctime != fs::Origin::any_ctime;
}

class Drop : LiveTransfer {
 public:
  explicit Drop(const LiveArguments& with) : LiveTransfer(with) {}

  void version(const OldVersion& old, Dropped& dropped) {
    std::vector<fs::WalkItem> items;
    for (const auto& path : old.files) {
      auto item = checked(path);
      if (!item) {
        dropped.stayed.push_back({.version = old.path, .file = path, .why = item.error()});
        return;
      }
      items.push_back(std::move(*item));
    }
    for (const auto& item : items) {
      const Status done = progress_.cancel ? fail(ECANCELED, "cancelled")
                                           : staging_.drop_unused(item.path, item.ino, *item.saved);
      if (!done) {
        dropped.stayed.push_back({.version = old.path, .file = item.path, .why = done.error()});
        return;
      }
      dropped.entries.push_back(receipt_entry(item, Action::kept, dropped_by_keep));
      ++progress_.files_done;
    }
  }

 private:
  /// The item of a file that may be dropped.
  Result<fs::WalkItem> checked(const std::string& path) {
    if (progress_.cancel) {
      return fail(ECANCELED, "cancelled");
    }
    auto item = staging_.find(path);
    if (!item) {
      return item;
    }
    if (!S_ISREG(item->attributes.st_mode) || item->attributes.st_nlink != 1) {
      return fail(EMLINK, "it has further names, or is not a regular file");
    }
    if (is_dirty(*item) || !item->saved || !item->parts.empty() || !item->unreadable.empty()) {
      return fail(EBUSY, "results-dir does not have its last version");
    }
    EFS_TRY(is_home(*item));
    return item;
  }

  // The open makes a network file system look at the file anew, instead of what it remembers.
  Status is_home(const fs::WalkItem& item) {
    if (!is_known(*item.saved)) {
      return fail(ESTALE, "the version of its copy is not known");
    }
    const auto top = pfs_.open(no_directory, config_.results_dir, directory_flags);
    const auto file = top ? pfs_.open_beneath(*top, config::result_path(config_, item.path),
                                              O_RDONLY | O_NONBLOCK)
                          : std::unexpected(top.error());
    const auto now = file ? pfs_.fstat(*file) : std::unexpected(file.error());
    if (!now) {
      return with_context(now.error(), "its copy in results-dir");
    }
    return S_ISREG(now->st_mode) &&
                   is_version(*item.saved, ledger::version_of(*now), ledger::Ctime::counts)
               ? Status()
               : fail(ESTALE, "results-dir has another version of it by now");
  }
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
