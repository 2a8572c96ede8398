#include "stage/renaming.hpp"

#include <algorithm>

#include "stage/paths.hpp"
#include "stage/selection.hpp"

namespace efs::stage {

Result<std::vector<fs::WalkItem>> RenamingBuffer::walk() {
  auto items = inner_.walk();
  if (!items) return items;
  std::unordered_set<std::string> names;  // at the top, of all that keeps its own
  for (const auto& item : *items)
    if (!item.path.contains('/') && config::result_path(config_, item.path) == item.path) names.insert(item.path);
  for (auto& item : *items) {
    if (item.copy) item.copy_path = config::result_path(config_, item.copy_path);
    std::string path = config::result_path(config_, item.path);
    if (path == item.path) continue;
    const std::string top = path.substr(0, path.find('/'));
    if (names.contains(top) || inner_.has(top)) {
      refused_.insert(item.path);
      continue;
    }
    item.keep = class_of(config_, item) == config::FileClass::persistent ? fs::Keep::persistent : fs::Keep::temporary;
    item.keep_path = item.path;
    item.origin.reset();
    own_names_.emplace(path, item.path);
    item.path = std::move(path);
  }
  std::ranges::stable_sort(*items, {}, &fs::WalkItem::path);
  return items;
}

std::string RenamingBuffer::refusal(const std::string& path) {
  if (!refused_.contains(path)) return {};
  return "it is to be " + config::result_path(config_, path) + " in results-dir, and the buffer has something else of that name; it is kept in the buffer only";
}

std::map<std::string, Error> RenamingBuffer::disown(std::span<const fs::PfsName> names, fs::Side side) {
  std::vector<fs::PfsName> own(names.begin(), names.end());
  std::unordered_map<std::string_view, std::string_view> given;  // by the own name
  for (auto& name : own) {
    const auto known = own_names_.find(name.path);
    if (known == own_names_.end()) continue;
    given.emplace(known->second, known->first);
    name.path = known->second;
  }
  std::map<std::string, Error> still;
  for (auto& [path, error] : inner_.disown(own, side)) {
    const auto known = given.find(path);
    still.emplace(known == given.end() ? path : std::string(known->second), std::move(error));
  }
  return still;
}

void RenamingBuffer::give_names_back(Receipt& receipt) const {
  for (auto& entry : receipt.entries) {
    const auto own = own_names_.find(entry.path);
    if (own == own_names_.end()) continue;
    if (entry.action == Action::staged_out || entry.action == Action::kept) entry.placed_as = entry.path;
    entry.path = own->second;
  }
}

}  // namespace efs::stage
