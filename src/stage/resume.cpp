#include "stage/resume.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "stage/hard_links.hpp"
#include "stage/paths.hpp"

namespace efs::stage {
namespace {

enum class Fate : std::uint8_t { stage, replace, keep, of_the_job };

Fate fate_of(const PlanEntry& entry, const fs::WalkItem* item) {
  if (item == nullptr) return Fate::stage;
  const mode_t type = item->attributes.st_mode & S_IFMT;
  if (type == S_IFDIR || entry.type == EntryType::directory) return type == S_IFDIR && entry.type == EntryType::directory ? Fate::keep : Fate::of_the_job;
  if (item->dirty || item->saved || !item->origin) return Fate::of_the_job;
  if (!item->parts.empty()) return Fate::replace;
  if (entry.type == EntryType::symlink) return type == S_IFLNK && item->target == entry.target ? Fate::keep : Fate::replace;
  return type == S_IFREG && *item->origin == entry.origin ? Fate::keep : Fate::replace;
}

/// Files with several names some of which are in the buffer: the others become names of that file.
void link_to_kept(std::vector<PlanEntry>& left, const std::vector<const PlanEntry*>& kept) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, const std::string*> there;  // by device and inode
  for (const auto* entry : kept) there.try_emplace({entry->origin.device, entry->origin.inode}, &entry->path);
  for (auto& entry : left) {
    if (!entry.linked) continue;
    if (const auto known = there.find({entry.origin.device, entry.origin.inode}); known != there.end()) entry.link_to = *known->second;
  }
}

}  // namespace

Subtracted subtract(Plan& plan, const std::vector<fs::WalkItem>& items, const std::vector<fs::WalkItem>& removed) {
  std::unordered_map<std::string_view, const fs::WalkItem*> there;
  for (const auto& item : items) there[item.path] = &item;
  std::unordered_set<std::string_view> gone;
  for (const auto& item : removed) gone.insert(item.path);
  std::unordered_set<std::string_view> needed;  // directories above what is staged in
  Subtracted result;
  std::vector<PlanEntry> left;
  std::vector<const PlanEntry*> kept_links;
  std::unordered_set<std::string> touched;  // directories that get a new name: their times are set again at the end
  for (const auto& entry : plan.entries) {
    if (entry.type == EntryType::directory) continue;
    const auto found = there.find(entry.path);
    const Fate fate = gone.contains(entry.path) ? Fate::of_the_job : fate_of(entry, found == there.end() ? nullptr : found->second);
    if (fate == Fate::replace) result.outdated.push_back(entry.path);
    if (fate == Fate::stage || fate == Fate::replace) {
      touched.insert(std::string(parent_view(entry.path)));
      for (auto above = parent_view(entry.path); !above.empty(); above = parent_view(above)) needed.insert(above);
      left.push_back(entry);
      continue;
    }
    if (fate == Fate::of_the_job) ++result.job_files;
    if (entry.type != EntryType::file) continue;
    if (fate != Fate::keep) continue;
    ++result.kept_files;
    if (entry.link_to.empty()) result.kept_bytes += entry.size;
    if (entry.linked) kept_links.push_back(&entry);
  }
  for (const auto& entry : plan.entries) {
    if (entry.type != EntryType::directory) continue;
    const auto found = there.find(entry.path);
    const bool missing = found == there.end() && (!gone.contains(entry.path) || needed.contains(entry.path));
    // A clean directory looks as on the PFS again when all is in; one that the job has changed stays as it is.
    if (missing || (found != there.end() && touched.contains(entry.path) && S_ISDIR(found->second->attributes.st_mode) && !found->second->dirty && !found->second->saved)) left.push_back(entry);
  }
  std::ranges::sort(left, {}, &PlanEntry::path);
  group_links(left);
  link_to_kept(left, kept_links);
  plan.entries = std::move(left);
  sum_up(plan);
  return result;
}

}  // namespace efs::stage
