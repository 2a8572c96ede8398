// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/renaming.hpp"

#include <algorithm>

#include "stage/export/selection.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {

namespace {

fs::GoneInput gone_input(const fs::WalkItem& item) {
  return {.type = item.attributes.st_mode & S_IFMT,
          .origin = item.pfs.origin.value_or(fs::Origin{}),
          .saved = item.pfs.saved,
          .linked = item.pfs.linked,
          .keep = item.keep,
          .target = item.target};
}

/// Returns the top-level names of the items that keep their own name.
std::unordered_set<std::string> top_level_names(const config::JobConfig& config,
                                                const std::vector<fs::WalkItem>& items) {
  std::unordered_set<std::string> names;
  for (const auto& item : items) {
    if (!item.path.contains('/') && config::result_path(config, item.path) == item.path) {
      names.insert(item.path);
    }
  }
  return names;
}

}  // namespace

std::vector<fs::WalkItem> RenamingBuffer::gone() {
  auto items = inner_.gone();
  std::erase_if(items, [this](const fs::WalkItem& item) { return own_names_.contains(item.path); });
  return items;
}

Result<std::vector<fs::WalkItem>> RenamingBuffer::walk() {
  auto items = inner_.walk();
  if (!items) {
    return items;
  }
  const auto names = top_level_names(config_, *items);
  const std::vector<fs::WalkItem> gone =
      config::has_results_in_place(config_) ? inner_.gone() : std::vector<fs::WalkItem>();
  GoneByName gone_by_name;
  for (const auto& one : gone) {
    gone_by_name.emplace(one.path, &one);
  }
  for (auto& item : *items) {
    if (item.pfs.copy) {
      item.pfs.copy_path = config::result_path(config_, item.pfs.copy_path);
    }
    std::string path = config::result_path(config_, item.path);
    if (path == item.path) {
      continue;
    }
    const std::string top = path.substr(0, path.find('/'));
    if (names.contains(top) || inner_.has(top)) {
      refused_.insert(item.path);
      continue;
    }
    give_result_name(item, std::move(path), gone_by_name);
  }
  std::ranges::stable_sort(*items, {}, &fs::WalkItem::path);
  return items;
}

/// Gives the item the path of its result. It keeps the class that it has by its own path.
void RenamingBuffer::give_result_name(fs::WalkItem& item, std::string path,
                                      const GoneByName& gone) {
  item.keep = class_of(config_, item) == config::FileClass::persistent ? fs::Keep::persistent
                                                                       : fs::Keep::temporary;
  item.keep_path = item.path;
  item.pfs.origin.reset();
  // The input whose name the result takes, not the input of the result's own name.
  item.pfs.replaced = nullptr;
  if (const auto input = gone.find(path); input != gone.end()) {
    item.pfs.replaced = std::make_shared<fs::GoneInput>(gone_input(*input->second));
  }
  own_names_.emplace(path, item.path);
  item.path = std::move(path);
}

std::string RenamingBuffer::refusal(const std::string& path) {
  if (!refused_.contains(path)) {
    return {};
  }
  return "it is to be " + config::result_path(config_, path) +
         " in results-dir, and the buffer has something else of that name; it is kept in the "
         "buffer only";
}

void RenamingBuffer::give_names_back(Receipt& receipt) const {
  for (auto& entry : receipt.entries) {
    const auto own = own_names_.find(entry.path);
    if (own == own_names_.end()) {
      continue;
    }
    const bool is_there = entry.action == Action::staged_out || entry.action == Action::kept ||
                          entry.action == Action::unchanged;
    const std::string& kept_as = entry.placed_as;  // in the same directory as another file
    if (is_there) {
      entry.placed_as = kept_as.empty() ? entry.path : join(parent_of(entry.path), kept_as);
    }
    entry.path = own->second;
  }
}

}  // namespace efs::stage
