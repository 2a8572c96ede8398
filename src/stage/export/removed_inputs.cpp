// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/removed_inputs.hpp"

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "stage/export/selection.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/plan/input_list.hpp"

namespace efs::stage {
namespace {

/// Looks up whether the job file's lists, in their present state, name a path or a directory above
/// it. An unreadable list names no path.
class Listed {
 public:
  explicit Listed(const config::JobConfig& config) : config_(config) {}

  bool holds(std::string_view path) {
    if (!read_) {
      read();
    }
    for (auto part = path;; part = parent_view(part)) {
      if (named_.contains(std::string(part))) {
        return true;
      }
      if (part.empty()) {
        return false;
      }
    }
  }

 private:
  void read() {
    read_ = true;
    for (const auto& resource : config_.resources) {
      const auto text = resource.is_list ? read_list(posix_pfs(), resource.path) : fail(ENOENT);
      if (!text) {
        continue;
      }
      for (auto& input :
           parse_list(*text, config_.root_dir, config_.mount_dir, config_.in_place).inputs) {
        named_.insert(std::move(input.as.empty() ? input.path : input.as));
      }
    }
  }

  const config::JobConfig& config_;
  bool read_ = false;
  std::unordered_set<std::string> named_;
};

}  // namespace

std::vector<fs::WalkItem> removed_inputs(const config::JobConfig& config,
                                         const std::vector<fs::WalkItem>& gone) {
  std::vector<fs::WalkItem> inputs;
  if (config.deletions != config::Deletions::propagate) {
    return inputs;
  }
  Listed listed(config);
  for (const auto& item : gone) {
    if (class_of(config, item) == config::FileClass::persistent &&
        (config::is_input(config, item.path) || listed.holds(item.path))) {
      inputs.push_back(item);
    }
  }
  return inputs;
}

std::vector<fs::WalkItem> take_dropped(const config::JobConfig& config,
                                       const std::vector<fs::WalkItem>& items,
                                       std::vector<fs::WalkItem>& inputs) {
  std::vector<fs::WalkItem> dropped;
  if (inputs.empty()) {
    return dropped;
  }
  // by inode: true if it has a name that is not dropped
  std::unordered_map<std::uint64_t, bool> lives_on;
  for (const auto& item : items) {
    bool& known = lives_on[item.ino];
    known =
        known || !item.due_for_export() || class_of(config, item) == config::FileClass::persistent;
  }
  std::erase_if(inputs, [&](const fs::WalkItem& item) {
    const auto name = lives_on.find(item.ino);
    const bool is_dropped = item.ino != 0 && !S_ISDIR(item.attributes.st_mode) &&
                            name != lives_on.end() && !name->second;
    if (is_dropped) {
      dropped.push_back(item);
    }
    return is_dropped;
  });
  return dropped;
}

}  // namespace efs::stage
