// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/leftovers.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/mutex.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

class Removal {
 public:
  Removal(const std::vector<fs::WalkItem>& items, std::string ending, ResultsTree& tree, PfsIo& pfs)
      : items_(items), ending_(std::move(ending)), tree_(tree), pfs_(pfs) {
    for (const auto& item : items) {
      if (item.path.ends_with(partial_suffix)) {
        results_.insert(item.path);
      }
    }
  }

  void clear(const std::string& path) {
    const auto directory = tree_.directory(path);
    const auto names = directory ? pfs_.list(*directory) : std::unexpected(directory.error());
    if (!names) {
      return;
    }
    for (const auto& name : *names) {
      if (is_left(*directory, name) && !results_.contains(join(path, name)) &&
          !tree_.is_way_name(join(path, name))) {
        remove(*directory, path, name);
      }
    }
  }

  Leftovers all() {
    const MutexLock lock(mutex_);
    std::ranges::sort(all_.left);
    return std::move(all_);
  }

 private:
  // A claim names its claimant.
  bool is_left(PfsRef directory, const std::string& name) {
    if (name.ends_with(ending_)) {
      return true;
    }
    const auto claimant = name.starts_with(claim_prefix) && name.ends_with(partial_suffix)
                              ? claimant_of(pfs_, directory, name)
                              : fail(ENOENT);
    return claimant && claimant->ends_with(ending_);
  }

  void remove(PfsRef at, const std::string& parent, const std::string& name) {
    const Status gone = pfs_.unlink(at, name);
    const bool is_directory = !gone && (gone.error().code == EISDIR || gone.error().code == EPERM);
    const bool is_gone = gone || (is_directory && remove_hidden(at, parent, name));
    const MutexLock lock(mutex_);
    all_.removed += is_gone ? 1 : 0;
    if (is_directory && !is_gone) {
      all_.left.push_back(join(parent, name));
    }
  }

  bool remove_hidden(PfsRef at, const std::string& parent, const std::string& name) {
    return remove_known(at, name, join(parent, name.substr(0, name.size() - ending_.size())));
  }

  /// `path`: its real one.
  bool remove_known(PfsRef at, const std::string& name, const std::string& path) {
    const auto directory = pfs_.open_beneath(at, name, directory_flags);
    const auto names = directory ? pfs_.list(*directory) : std::unexpected(directory.error());
    if (!names) {
      return false;
    }
    for (const auto& one : *names) {
      const std::string known = join(path, one);
      if (!one.ends_with(ending_) && !is_known(known)) {
        continue;
      }
      const Status gone = pfs_.unlink(*directory, one);
      if (!gone && (gone.error().code == EISDIR || gone.error().code == EPERM)) {
        (void)remove_known(*directory, one, known);
      }
    }
    return pfs_.rmdir(at, name).has_value();
  }

  bool is_known(const std::string& path) {
    std::call_once(known_once_, [this] {
      for (const auto& item : items_) {
        known_.insert(item.path);
      }
    });
    return known_.contains(path);
  }

  const std::vector<fs::WalkItem>& items_;
  const std::string ending_;
  ResultsTree& tree_;
  PfsIo& pfs_;
  std::unordered_set<std::string_view> results_;  // results whose names look like partials
  std::once_flag known_once_;
  std::unordered_set<std::string_view> known_;
  Mutex mutex_;  // rank 90 (leaf)
  Leftovers all_ EFS_GUARDED_BY(mutex_);
};

}  // namespace

Leftovers remove_leftovers(const std::set<std::string, std::less<>>& directories,
                           const std::vector<fs::WalkItem>& items, const ExportContext& context) {
  const std::string& tag = context.options.partial_tag;
  if (tag.empty()) {
    return {};
  }
  Removal removal(items, tag + partial_suffix, context.tree, context.pfs);
  const std::vector<std::string> paths(directories.begin(), directories.end());
  context.pool.run(paths.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (const auto& path : std::span(paths).subspan(begin, end - begin)) {
      removal.clear(path);
    }
  });
  return removal.all();
}

}  // namespace efs::stage
