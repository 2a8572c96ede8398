// SPDX-License-Identifier: BSD-3-Clause
// The entries of the plan to be: by their names on the mount, each once.
#include "stage/plan/expansion.hpp"

#include <algorithm>

#include "stage/plan/follow.hpp"

namespace efs::stage {

namespace {

/// The entry also fulfils what earlier resources ask of `known`, which has its path.
void add_requests_of(const PlanEntry& known, PlanEntry& entry) {
  entry.priority = std::max(entry.priority, known.priority);
  entry.reusable = entry.reusable || (entry.outside.empty() && known.reusable);
  entry.stage = std::min(entry.stage, known.stage);
  entry.evictable = entry.evictable && known.evictable;
  entry.accepts_change = entry.accepts_change && known.accepts_change;
  entry.found = entry.found && known.found;
  entry.may_vanish = entry.found && entry.may_vanish && known.may_vanish;
}

}  // namespace

PlanEntry& Expansion::insert(const std::string& path, EntryType type,
                             const struct stat& attributes) {
  return insert_at(placed(path), as_ == nullptr ? std::nullopt : std::optional(path), type,
                   attributes);
}

PlanEntry& Expansion::insert_at(const std::string& path, std::optional<std::string> source,
                                EntryType type, const struct stat& attributes) {
  PlanEntry entry;
  entry.path = path;
  entry.source = std::move(source);
  if (!follows_to_.empty()) {
    entry.outside = follows_to_.back().target + path_in_target(path);
  }
  entry.type = type;
  take_version(entry, attributes);
  entry.file_class = config::classify(config_, path, true);
  const auto [at, known] = find(path);
  entry.priority = priority_;
  entry.reusable = entry.outside.empty() && reusable_;
  entry.stage = stage_;
  entry.evictable = evictable_;
  entry.accepts_change = accepts_change_;
  entry.found = !named_;
  entry.may_vanish = entry.found && skips_vanished_;
  if (known) {
    add_requests_of(at->second, entry);
    return at->second = std::move(entry);
  }
  newest_ = entries_.emplace_hint(at, path, std::move(entry));
  return newest_->second;
}

std::pair<Expansion::Entries::iterator, bool> Expansion::find(const std::string& path) {
  const auto behind = newest_ == entries_.end() ? newest_ : std::next(newest_);
  const bool in_order = newest_ != entries_.end() && newest_->first < path &&
                        (behind == entries_.end() || path <= behind->first);
  const auto at = in_order ? behind : entries_.lower_bound(path);
  return {at, at != entries_.end() && at->first == path};
}

void Expansion::ask_again(PlanEntry& entry) const {
  entry.priority = std::max(entry.priority, priority_);
  entry.reusable = entry.outside.empty() && (entry.reusable || reusable_);
  entry.stage = std::min(entry.stage, stage_);
  entry.evictable = entry.evictable && evictable_;
  entry.accepts_change = entry.accepts_change && accepts_change_;
  entry.found = entry.found && !named_;
  entry.may_vanish = entry.may_vanish && entry.found && skips_vanished_;
}

void Expansion::ask_again(const std::string& directory) {
  named_ = false;
  const std::string prefix = directory.empty() ? "" : directory + "/";
  for (auto it = entries_.lower_bound(prefix);
       it != entries_.end() && it->first.starts_with(prefix); ++it) {
    ask_again(it->second);
  }
}

InputDirectories Expansion::input_directories() const {
  InputDirectories all{.root = false, .whole = {}, .above = above_inputs_};
  for (const auto& [place, path] : complete_) {
    const auto entry = entries_.find(place);
    if (path.empty()) {
      all.root = true;
    } else if (entry != entries_.end()) {
      all.whole.try_emplace({entry->second.origin.device, entry->second.origin.inode}, path);
    }
  }
  return all;
}

void Expansion::finish() {
  // A later resource may have named a path that an earlier resource skipped.
  std::erase_if(plan_.skipped, [&](const PlanSkip& known) {
    const auto entry = entries_.find(known.path);
    return entry != entries_.end() && entry->second.from() == known.path;
  });
  plan_.entries.reserve(entries_.size());
  for (auto& [path, entry] : entries_) {
    plan_.entries.push_back(std::move(entry));
  }
  entries_.clear();
  newest_ = entries_.end();
}

}  // namespace efs::stage
