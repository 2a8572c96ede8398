// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/result_attributes.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/user.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

/// The primary groups of users. For the process's own user, the group that new files get.
class PrimaryGroups {
 public:
  gid_t of(uid_t uid) {
    if (uid == user_) {
      return group_;
    }
    const auto known = groups_.find(uid);
    if (known != groups_.end()) {
      return known->second;
    }
    const auto user = find_user(std::to_string(uid));
    return groups_[uid] = user ? user->gid : uid;
  }

 private:
  const uid_t user_ = ::geteuid();
  const gid_t group_ = ::getegid();
  std::unordered_map<uid_t, gid_t> groups_;
};

/// Finds the items whose group no program has chosen.
class GroupChoices {
 public:
  explicit GroupChoices(bool in_place) : in_place_(in_place) {}

  /// Sets ItemGroup::plain of such an item. Parents come before children.
  void look(fs::WalkItem& item) {
    const auto& attributes = item.attributes;
    const gid_t plain = groups_.of(attributes.st_uid);
    const bool came_in = in_place_ && item.pfs.origin;  // it has this group on the PFS
    const bool by_directory = item.group.handed_down && !chosen_.contains(parent_of(item.path));
    if (!came_in && (attributes.st_gid == plain || by_directory)) {
      item.group.plain = plain;
    } else if (S_ISDIR(attributes.st_mode) && (!came_in || item.pfs.dirty)) {
      chosen_.insert(item.path);
    }
  }

 private:
  const bool in_place_;
  PrimaryGroups groups_;
  // Directories whose group a program has chosen: their content inherits it.
  std::unordered_set<std::string> chosen_;
};

}  // namespace

mode_t with_results_mode(mode_t mode, mode_t results_mode) {
  const mode_t search = (results_mode & 0444U) >> 2U;
  if (S_ISDIR(mode)) {
    return (mode & (S_IFMT | S_ISGID | S_ISVTX)) | results_mode | search | 0700U;
  }
  return (mode & S_IFMT) | results_mode | ((mode & 0111U) != 0 ? search : 0);
}

std::string choose_attributes(const config::JobConfig& config, std::vector<fs::WalkItem>& items) {
  const std::string& group = config.results_group;
  const auto asked = group.empty() ? Result<gid_t>(fail(ENOENT)) : find_group(group);
  GroupChoices choices(config::has_results_in_place(config));
  for (auto& item : items) {
    auto& attributes = item.attributes;
    if (config.results_mode && !S_ISLNK(attributes.st_mode)) {
      attributes.st_mode = with_results_mode(attributes.st_mode, *config.results_mode);
    }
    item.group.is_asked = asked.has_value();
    if (asked) {
      attributes.st_gid = *asked;
    } else {
      choices.look(item);
    }
  }
  if (asked || group.empty()) {
    return {};
  }
  return "results-group: " + describe(asked.error()) +
         "; results have the group of their directory";
}

}  // namespace efs::stage
