// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/distribute.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/line_file.hpp"

namespace efs::stage {
namespace {

// True if the resource, which is at `place` on the mount, names the path or a directory above it.
bool reaches(const config::Resource& resource, std::string_view place, const std::string& path) {
  if (!resource.is_glob) {
    return place.empty() || path == place || path.starts_with(std::string(place) + "/");
  }
  for (std::string part = path; !part.empty();
       part.resize(part.rfind('/') == part.npos ? 0 : part.rfind('/'))) {
    if (config::glob_match(place, part)) {
      return true;
    }
  }
  return false;
}

// The resource that decides the path's class: the one that names the path, or its deepest ancestor.
const config::Resource* resource_of(const config::JobConfig& config, const std::string& path) {
  const config::Resource* best = nullptr;
  for (const auto& resource : config.resources) {
    if (!resource.is_list && reaches(resource, place_of(config, resource), path) &&
        (best == nullptr || place_of(config, resource).size() > place_of(config, *best).size())) {
      best = &resource;
    }
  }
  return best;
}

}  // namespace

std::vector<Dealt> deal_out(const config::JobConfig& config, std::vector<PlanEntry>& entries) {
  if (config.nodes < 2) {
    return {};
  }
  std::vector<const PlanEntry*> dealt;
  for (const auto& entry : entries) {
    const auto* resource =
        entry.type == EntryType::file ? resource_of(config, entry.path) : nullptr;
    if (resource != nullptr && resource->distribute == config::Distribute::partition) {
      dealt.push_back(&entry);
    }
  }
  std::ranges::stable_sort(
      dealt, [](const PlanEntry* a, const PlanEntry* b) { return a->size > b->size; });
  std::vector<std::uint64_t> load(config.nodes, 0);
  std::vector<Dealt> parts;
  std::set<std::string> others;
  for (const auto* entry : dealt) {
    const auto least = std::ranges::min_element(load);
    *least += entry->size + 4096;  // so that empty files count too
    parts.push_back({.path = entry->path, .node = static_cast<unsigned>(least - load.begin())});
    if (parts.back().node != config.node) {
      others.insert(entry->path);
    }
  }
  std::erase_if(entries, [&](const PlanEntry& entry) { return others.contains(entry.path); });
  std::ranges::sort(parts, {}, &Dealt::path);
  return parts;
}

std::string lines_of(const std::vector<Dealt>& parts) {
  std::string lines;
  for (const auto& part : parts) {
    lines += std::to_string(part.node) + " " + escape_line(part.path, '\n') + "\n";
  }
  return lines;
}

}  // namespace efs::stage
