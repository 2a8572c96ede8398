// SPDX-License-Identifier: BSD-3-Clause
#include "ledger/ledger.hpp"

#include <algorithm>
#include <utility>

#include "base/table_room.hpp"

namespace efs::ledger {

void Ledger::apply(const Event& event) {
  std::visit([this](const auto& one) { on(one); }, event);
}

void Ledger::make_room() {
  efs::make_room(entries_);
}

void Ledger::on(const Announced& event) {
  auto announced = std::make_unique<Announced>(event);
  entries_[event.at.name].announced = std::move(announced);
}

void Ledger::on(const Exported& event) {
  set_last(event.at, event.file);
}

void Ledger::on(const Removed& event) {
  set_last(event.at, {});
}

void Ledger::set_last(const Name& at, const std::optional<File>& file) {
  Entry& entry = entries_[at.name];
  entry.announced.reset();
  entry.last = {.own = at.own, .number = ++deeds_, .file = file};
}

void Ledger::on(const Imported& event) {
  const auto entry = entries_.find(event.name);
  if (entry == entries_.end()) {
    return;
  }
  entry->second.announced.reset();
  entry->second.last.reset();
  if (!entry->second.directory) {
    entries_.erase(entry);
  }
}

void Ledger::on(const DirectoryGiven& event) {
  auto directory = std::make_unique<DirectoryGiven>(event);
  entries_[event.at.name].directory = std::move(directory);
}

void Ledger::on(const Missed& event) {
  unsure_since_ = std::min(unsure_since_.value_or(event.since), event.since);
}

const Ledger::Entry* Ledger::find(NameKey name) const {
  const auto entry = entries_.find(name);
  return entry == entries_.end() ? nullptr : &entry->second;
}

WhoseCopy Ledger::whose(const Name& at, const File& now, Ctime ctime) const {
  const auto by = [&](NameKey own) {
    return own == at.own ? WhoseCopy::ours : WhoseCopy::of_another_path;
  };
  const Entry* entry = find(at.name);
  if (entry != nullptr && entry->announced) {
    const Announced& announced = *entry->announced;
    if (announced.version && is_version(*announced.version, now, ctime)) {
      return by(announced.at.own);
    }
    // Only if the former file is still there, the change was not made.
    if (!announced.before || !is_version(*announced.before, now, Ctime::counts)) {
      return WhoseCopy::theirs;
    }
  }
  if (entry == nullptr || !entry->last) {
    return unsure_since_ && now.version.ctime >= *unsure_since_ ? WhoseCopy::unsure
                                                                : WhoseCopy::unknown;
  }
  const auto& file = entry->last->file;
  return file && is_version(*file, now, ctime) ? by(entry->last->own) : WhoseCopy::theirs;
}

bool Ledger::knows(NameKey name) const {
  const Entry* entry = find(name);
  return entry != nullptr && (entry->last || entry->announced);
}

bool Ledger::has_removed(NameKey name) const {
  const Entry* entry = find(name);
  if (entry != nullptr && entry->announced) {
    return !entry->announced->version;
  }
  return entry != nullptr && entry->last && !entry->last->file;
}

std::optional<Nanoseconds> Ledger::newest_export() const {
  Nanoseconds newest = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry.last && entry.last->file) {
      newest = std::max(newest, entry.last->file->version.ctime);
    }
  }
  return newest > 0 ? std::optional(newest) : std::nullopt;
}

std::optional<Exported> Ledger::arrived(NameKey name, const File& now) const {
  const Entry* entry = find(name);
  const Announced* announced = entry == nullptr ? nullptr : entry->announced.get();
  if (announced == nullptr || !announced->version ||
      !is_version(*announced->version, now, Ctime::counts)) {
    return {};
  }
  return Exported{.at = announced->at, .file = now};
}

DirectoryState Ledger::directory(const Name& at) const {
  const Entry* entry = find(at.name);
  const bool is_known = entry != nullptr && entry->directory && entry->directory->at.own == at.own;
  return is_known ? entry->directory->state : DirectoryState();
}

std::vector<std::pair<NameKey, const Ledger::Deed*>> Ledger::in_order() const {
  std::vector<std::pair<NameKey, const Deed*>> deeds;
  for (const auto& [name, entry] : entries_) {
    if (entry.last) {
      deeds.emplace_back(name, &*entry.last);
    }
  }
  std::ranges::sort(deeds, {}, [](const auto& one) { return one.second->number; });
  return deeds;
}

std::vector<FileVersion> Ledger::copies() const {
  std::vector<FileVersion> copies;
  for (const auto& [name, deed] : in_order()) {
    if (deed->file) {
      copies.push_back(deed->file->version);
    }
  }
  return copies;
}

void Ledger::snapshot(const std::function<void(const Event&)>& emit) const {
  if (unsure_since_) {
    emit(Missed{*unsure_since_});
  }
  for (const auto& [name, deed] : in_order()) {
    const Name at{.name = name, .own = deed->own};
    emit(deed->file ? Event(Exported{.at = at, .file = *deed->file}) : Event(Removed{at}));
  }
  // After the deeds, which end announcements.
  for (const auto& [name, entry] : entries_) {
    if (entry.announced) {
      emit(*entry.announced);
    }
    if (entry.directory) {
      emit(*entry.directory);
    }
  }
}

}  // namespace efs::ledger
