// SPDX-License-Identifier: BSD-3-Clause
#include "stage/resume/resume.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "stage/export/removed_inputs.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/plan/follow.hpp"
#include "stage/plan/hard_links.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {
namespace {

/// stuck: changed by the job, and now of another type on the PFS.
enum class Fate : std::uint8_t { stage, replace, keep, of_the_job, stuck };

/// Ignores the device, whose number may change when the PFS is mounted again.
bool is_same_version(const fs::Origin& a, const fs::Origin& b) {
  return a.inode == b.inode && a.size == b.size && a.mtime == b.mtime && a.ctime == b.ctime;
}

/// True if the PFS now has another version under this name than the imported one.
bool is_another(const PlanEntry& entry, const fs::WalkItem& gone) {
  switch (entry.type) {
    case EntryType::directory: return !S_ISDIR(gone.attributes.st_mode);
    case EntryType::symlink:
      return !S_ISLNK(gone.attributes.st_mode) || gone.target != entry.target;
    default: break;
  }
  if (!S_ISREG(gone.attributes.st_mode)) {
    return true;
  }
  // in place it is the job's version
  if (gone.pfs.saved && fs::is_same_file(*gone.pfs.saved, entry.origin)) {
    return false;
  }
  return gone.pfs.origin && gone.pfs.origin->inode != 0 &&
         !fs::is_same_file(*gone.pfs.origin, entry.origin);
}

/// True if the content has left the buffer, and may stay away although the plan asks for it now:
/// the room may have a result.
bool has_left(const PlanEntry& entry, const fs::WalkItem& item) {
  return item.content.evictable && !item.content.accepts_change && entry.evictable &&
         entry.stage == config::StageWhen::now && !entry.linked &&
         item.content.remote_source == source_of(entry);
}

/// For an item that the job has not changed.
Fate fate_of_clean(const PlanEntry& entry, const fs::WalkItem& item) {
  const mode_t type = item.attributes.st_mode & S_IFMT;
  // a remote file is made again: its resource may ask for its content now
  if (entry.type == EntryType::directory || !item.pfs.parts.empty() ||
      !item.content.unreadable.empty() || (item.content.remote && !has_left(entry, item))) {
    return Fate::replace;
  }
  if (entry.type == EntryType::symlink) {
    return type == S_IFLNK && item.target == entry.target ? Fate::keep : Fate::replace;
  }
  return type == S_IFREG && is_same_version(*item.pfs.origin, entry.origin) && !is_foreign(item)
             ? Fate::keep
             : Fate::replace;
}

Fate fate_of(const PlanEntry& entry, const fs::WalkItem* item) {
  if (item == nullptr) {
    return Fate::stage;
  }
  const bool directory = entry.type == EntryType::directory;
  const bool was_directory = S_ISDIR(item->attributes.st_mode);
  if (directory && was_directory) {
    return Fate::keep;
  }
  if (item->pfs.is_as_imported()) {
    return fate_of_clean(entry, *item);
  }
  return directory != was_directory && item->pfs.origin ? Fate::stuck : Fate::of_the_job;
}

/// For files with several names, some of which are in the buffer: the other names become links to
/// the file in the buffer.
void link_to_kept(std::vector<PlanEntry>& left, const std::vector<const PlanEntry*>& kept) {
  // by device and inode
  std::map<std::pair<std::uint64_t, std::uint64_t>, const std::string*> there;
  for (const auto* entry : kept) {
    there.try_emplace({entry->origin.device, entry->origin.inode}, &entry->path);
  }
  for (auto& entry : left) {
    if (!entry.linked) {
      continue;
    }
    if (const auto known = there.find({entry.origin.device, entry.origin.inode});
        known != there.end()) {
      entry.link_to = *known->second;
    }
  }
}

std::string describe_type(mode_t mode) {
  return S_ISDIR(mode) ? "a directory" : S_ISLNK(mode) ? "a symbolic link" : "a file";
}

std::string describe_type(EntryType type) {
  return describe_type(type == EntryType::directory ? S_IFDIR
                       : type == EntryType::symlink ? S_IFLNK
                                                    : S_IFREG);
}

class Subtraction {
 public:
  Subtraction(const std::vector<fs::WalkItem>& items, const std::vector<fs::WalkItem>& removed)
      : items_(items) {
    for (const auto& item : items) {
      there_[item.path] = &item;
    }
    for (const auto& item : removed) {
      gone_.insert(item.path);
    }
  }

  Subtracted run(Plan& plan) {
    find_inside(plan.entries);
    for (const auto& entry : plan.entries) {
      const Fate fate = judge(entry);
      if (entry.type == EntryType::directory) {
        directories_.emplace_back(&entry, fate);
      } else {
        take(entry, fate);
      }
    }
    // Children before parents: imported items, including empty directories, need their parents.
    for (auto it = directories_.rbegin(); it != directories_.rend(); ++it) {
      take_directory(*it->first, it->second);
    }
    std::ranges::sort(left_, {}, &PlanEntry::path);
    group_links(left_);
    link_to_kept(left_, kept_links_);
    plan.entries = std::move(left_);
    sum_up(plan);
    return std::move(result_);
  }

 private:
  const fs::WalkItem* item_at(std::string_view path) const {
    const auto found = there_.find(path);
    return found == there_.end() ? nullptr : found->second;
  }

  /// Finds the items in directories of the buffer that are no longer directories on the PFS.
  void find_inside(const std::vector<PlanEntry>& entries) {
    for (const auto& path : displaced_directories(entries, items_)) {
      inside_[path];
    }
    if (inside_.empty()) {
      return;
    }
    for (const auto& item : items_) {
      for (auto above = parent_view(item.path); !above.empty(); above = parent_view(above)) {
        if (const auto found = inside_.find(std::string(above)); found != inside_.end()) {
          found->second.push_back(&item);
        }
      }
    }
  }

  Fate judge(const PlanEntry& entry) {
    const auto* item = item_at(entry.path);
    const bool directory = entry.type == EntryType::directory;
    Fate fate = gone_.contains(entry.path) && !directory ? Fate::of_the_job : fate_of(entry, item);
    if (fate == Fate::replace && holds_changes(entry.path)) {
      fate = Fate::stuck;
    }
    // The job has replaced the directory, so its content on the PFS cannot be imported.
    if (barred_.contains(parent_view(entry.path))) {
      fate = Fate::of_the_job;
    }
    if (directory && (fate == Fate::of_the_job || fate == Fate::stuck)) {
      barred_.insert(entry.path);
    }
    if (fate == Fate::replace) {
      replace(entry.path);
    }
    if (fate == Fate::stuck) {
      result_.problems.push_back({.path = entry.path,
                                  .reason = "is " + describe_type(entry.type) +
                                            " on the PFS now, and " +
                                            describe_type(item->attributes.st_mode) +
                                            " in the buffer, with changes of the job's"});
    }
    return fate;
  }

  /// True if the job has changed an item in this directory that find_inside() has looked at.
  bool holds_changes(const std::string& path) const {
    const auto held = inside_.find(path);
    return held != inside_.end() && !std::ranges::all_of(held->second, [](const auto* below) {
             return below->pfs.is_as_imported();
           });
  }

  void replace(const std::string& path) {
    if (const auto held = inside_.find(path); held != inside_.end()) {
      for (auto it = held->second.rbegin(); it != held->second.rend(); ++it) {
        result_.outdated.push_back((*it)->path);
      }
    }
    result_.outdated.push_back(path);
  }

  void bring(const PlanEntry& entry) {
    for (auto above = parent_view(entry.path); !above.empty(); above = parent_view(above)) {
      needed_.insert(above);
    }
    left_.push_back(entry);
  }

  void take(const PlanEntry& entry, Fate fate) {
    if (fate == Fate::stage || fate == Fate::replace) {
      return bring(entry);
    }
    if (fate == Fate::of_the_job) {
      ++(gone_.contains(entry.path) ? result_.away_files : result_.job_files);
    }
    if (fate != Fate::keep || entry.type != EntryType::file) {
      return;
    }
    ++result_.kept_files;
    if (entry.link_to.empty()) {
      result_.kept_bytes += entry.size;
    }
    if (entry.linked) {
      kept_links_.push_back(&entry);
    }
  }

  void take_directory(const PlanEntry& entry, Fate fate) {
    if (fate == Fate::replace ||
        (fate == Fate::stage && (!gone_.contains(entry.path) || needed_.contains(entry.path)))) {
      return bring(entry);
    }
    // A clean directory gets the PFS's attributes again at the end: they may have changed there, or
    // an interrupted stage-in has not set them. A directory that the job has changed stays
    // unchanged.
    const auto* item = item_at(entry.path);
    if (fate == Fate::keep && !item->pfs.dirty && !item->pfs.saved) {
      left_.push_back(entry);
    }
  }

  const std::vector<fs::WalkItem>& items_;
  std::unordered_map<std::string_view, const fs::WalkItem*> there_;
  std::unordered_set<std::string_view> gone_;
  std::unordered_map<std::string, std::vector<const fs::WalkItem*>> inside_;
  // directories of the plan that the job has replaced
  std::unordered_set<std::string_view> barred_;
  std::unordered_set<std::string_view> needed_;  // ancestors of imported items
  std::vector<std::pair<const PlanEntry*, Fate>> directories_;
  std::vector<const PlanEntry*> kept_links_;
  std::vector<PlanEntry> left_;
  Subtracted result_;
};

}  // namespace

std::vector<std::string> displaced_directories(const std::vector<PlanEntry>& entries,
                                               const std::vector<fs::WalkItem>& items) {
  std::unordered_set<std::string_view> directories;
  for (const auto& item : items) {
    if (S_ISDIR(item.attributes.st_mode)) {
      directories.insert(item.path);
    }
  }
  std::vector<std::string> displaced;
  for (const auto& entry : entries) {
    if (entry.type != EntryType::directory && directories.contains(entry.path)) {
      displaced.push_back(entry.path);
    }
  }
  return displaced;
}

Status all_disowned(const std::map<std::string, Error>& still) {
  if (still.empty()) {
    return {};
  }
  const auto& [path, error] = *still.begin();
  return fail(error.code, path + ": revoking the record of its earlier file: " + describe(error));
}

Status disown_others(const config::JobConfig& config, const Plan& plan, fs::Staging& staging) {
  std::vector<fs::PfsName> names;
  names.reserve(plan.entries.size());
  for (const auto& entry : plan.entries) {
    names.push_back({.path = entry.path, .version = entry.origin});
  }
  const bool in_place = config::has_results_in_place(config);
  return all_disowned(staging.revoke(names, in_place ? fs::Side::both : fs::Side::inputs));
}

namespace {

using EntriesByPath = std::unordered_map<std::string_view, const PlanEntry*>;

/// True if an unload or a drop removed the name of a file that the job made.
bool is_dropped_result(const fs::WalkItem& gone) {
  return gone.pfs.saved && gone.pfs.origin == fs::Origin{};
}

/// True if the plan has the version of this removed input, or in place of this dropped result.
bool asks_for(const EntriesByPath& wanted, const fs::WalkItem& gone, bool in_place) {
  const auto entry = wanted.find(gone.path);
  if (entry == wanted.end()) {
    return false;
  }
  return in_place && is_dropped_result(gone)
             ? fs::is_same_file(*gone.pfs.saved, entry->second->origin)
             : !is_another(*entry->second, gone);
}

/// True if the file was exported, or still exists under another name.
bool has_own_version(const fs::WalkItem& gone) {
  return gone.pfs.saved || gone.ino != 0;
}

}  // namespace

Result<std::vector<fs::WalkItem>> stays_away(
    const config::JobConfig& config, const Plan& plan, fs::Staging& staging, bool kept,
    const std::function<Result<bool>(const std::string&)>& is_out) {
  const bool in_place = config::has_results_in_place(config);
  auto gone = staging.gone(!in_place);
  auto away = removed_inputs(config, gone);
  if (kept && in_place) {
    return away;
  }
  if (in_place) {
    std::ranges::copy_if(staging.gone(true), std::back_inserter(gone), is_dropped_result);
  }
  EntriesByPath wanted;
  for (const auto& entry : plan.entries) {
    wanted.emplace(entry.path, &entry);
  }
  for (const auto& item : gone) {
    if (!asks_for(wanted, item, in_place)) {
      continue;
    }
    const auto stays = !kept || has_own_version(item) ? Result<bool>(true) : is_out(item.path);
    if (!stays) {
      return std::unexpected(stays.error());
    }
    if (*stays) {
      away.push_back(item);
    }
  }
  return away;
}

Subtracted subtract(Plan& plan, const std::vector<fs::WalkItem>& items,
                    const std::vector<fs::WalkItem>& removed) {
  return Subtraction(items, removed).run(plan);
}

}  // namespace efs::stage
