// SPDX-License-Identifier: BSD-3-Clause
#include "ledger/files.hpp"

#include <algorithm>
#include <unordered_set>

#include "base/table_room.hpp"

namespace efs::ledger {
namespace {

// Until the PFS has the new copy it has the former one, which in place is the version that the job
// may replace. A copy that is not known to have got its name does not count.
bool is_before(const std::optional<FileVersion>& before, const SavedCopy& copy) {
  return copy.in_place && copy.version.ctime == FileVersion::any_ctime && before &&
         before->ctime > 0 && !is_same_file(*before, copy.version);
}

template <typename Copy>
void remove_name(std::optional<Copy>& copy, std::string_view name) {
  if (copy) {
    copy->names.remove(name);
    if (copy->names.empty()) {
      copy.reset();
    }
  }
}

// An input with several names was exported in place under all of them, and is now exported again
// under one. The PFS has the earlier copy under the other names, and no longer the imported
// version.
void keep_of_others(FileEntry& entry, const std::string& path, const LeadsTo& leads_to) {
  if (!entry.exported || !entry.imported || entry.exported->version.ctime == 0 ||
      !entry.imported->names.contains(path)) {
    return;
  }
  bool any = false;
  for (const auto& name : entry.imported->names.list()) {
    if (name == path || !leads_to(name)) {
      continue;
    }
    if (!entry.exported->names.contains(name)) {
      return;  // this name has the imported version
    }
    any = true;
  }
  if (any) {
    entry.imported->version = entry.exported->version;
  }
}

}  // namespace

void Files::apply(FileEvent event) {
  std::visit([this](auto& one) { on(std::move(one)); }, event);
}

void Files::make_room() {
  efs::make_room(entries_);
}

void Files::on(FileGiven&& event) {
  if (event.entry.empty()) {
    entries_.erase(event.id);
  } else {
    entries_.insert_or_assign(event.id, std::move(event.entry));
  }
}

// A partly loaded file does not replace an input.
void Files::on(FileNamed&& event) {
  if (gone_.empty() || !of(event.id).is_whole_import()) {
    return;
  }
  for (const auto& path : of(event.id).imported->names.list()) {
    gone_.erase(path);
  }
}

void Files::on(LastNameLost&& event) {
  if (!of(event.node.id).is_whole_import()) {
    return;
  }
  for (auto& path : of(event.node.id).imported->names.list()) {
    auto input = gone_input(event.node, path);
    // The file in results-dir under this name may be of another file that replaced this one, or of
    // this file from before its rename.
    if (const auto before = gone_.find(path); before != gone_.end() && !input.saved) {
      input.saved = before->second.saved, input.linked = input.linked || before->second.linked;
    }
    gone_.insert_or_assign(std::move(path), std::move(input));
  }
}

void Files::on(GoneGiven&& event) {
  if (event.input) {
    gone_.insert_or_assign(std::move(event.path), std::move(*event.input));
  } else {
    gone_.erase(event.path);
  }
}

void Files::on(FileCompleted&& event) {
  if (const auto entry = entries_.find(event.id); entry != entries_.end()) {
    entry->second.parts.clear();
    if (entry->second.empty()) {
      entries_.erase(entry);
    }
  }
}

void Files::on(FileFreed&& event) {
  entries_.erase(event.id);
}

const FileEntry* Files::find(std::uint64_t id) const {
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? nullptr : &entry->second;
}

const FileEntry& Files::of(std::uint64_t id) const {
  static const FileEntry none;
  const FileEntry* entry = find(id);
  return entry == nullptr ? none : *entry;
}

const GoneInput* Files::find_input(const std::string& path) const {
  const auto known = gone_.find(path);
  return known == gone_.end() || known->second.was_never_sent() ? nullptr : &known->second;
}

bool Files::has_content(const Node& node) const {
  const FileEntry& entry = of(node.id);
  return !node.dirty && (entry.imported || entry.exported);
}

bool Files::has_imported_content(const Node& node) const {
  const FileEntry& entry = of(node.id);
  return !node.dirty && entry.is_whole_import() && !entry.exported && !node.remote;
}

NameEntry Files::entry_of(const Node& node, const std::string& path,
                          const LeadsTo& leads_to) const {
  NameEntry item{.dirty = true};
  const auto& [imported, exported, parts] = of(node.id);
  if (imported && imported->names.contains(path)) {
    item.origin = imported->version;
    item.linked = imported->names.had_several();
    // If it was changed and exported under other names only, it has changed since the import.
    item.dirty = node.dirty || (exported && !exported->as_imported);
  }
  if (exported && exported->names.contains(path)) {
    item.saved = exported->version;
    item.saved_linked = node.linked || exported->names.had_several();
    item.dirty = node.dirty;
  } else if (exported && !node.dirty && S_ISREG(node.type) && node.linked) {
    // A name that the file has lost since is no hard link's.
    const auto names = exported->names.list();
    if (const auto name = std::ranges::find_if(names, leads_to); name != names.end()) {
      item.copy_path = *name;
      item.copy = exported->version;
    }
  }
  if (has_imported_content(node)) {
    item.content = imported->version;
  }
  item.parts = parts;
  return item;
}

GoneInput Files::gone_input(const Node& node, std::string_view path) const {
  const auto& [imported, exported, parts] = of(node.id);
  GoneInput input{.type = node.type,
                  .origin = imported ? imported->version : FileVersion(),
                  .saved = {},
                  .linked = (imported && imported->names.had_several()) ||
                            (exported && exported->names.had_several()),
                  .keep = node.keep,
                  .target = std::string(node.target)};
  if (exported && exported->names.contains(path)) {
    input.saved = exported->version;
  }
  return input;
}

// A newer record of the name, of a file that replaced this one, stays.
void Files::add_gone(const Node& node, std::string_view path, Change& change) const {
  std::string name(path);
  if (!gone_.contains(name) && !change.gone.contains(name)) {
    change.gone.emplace(std::move(name), gone_input(node, path));
  }
}

// If the job later removes or replaces the file, this version is the removed one, not the input
// that it replaced. That input may exist under another name; no record here shows that yet.
void Files::add_replaced(bool linked, const std::string& path, const SavedCopy& copy,
                         Change& change) const {
  const GoneInput* known = find_input(path);
  if (known == nullptr && copy.replaced == nullptr) {
    if (gone_.contains(path)) {  // a result that was never sent: now the PFS has another one
      change.gone.emplace(path, std::nullopt);
    }
    return;
  }
  GoneInput input = known != nullptr ? *known : *copy.replaced;
  if (is_before(input.saved, copy)) {
    input.origin = *input.saved;
  }
  input.saved = copy.version;
  // the copy has several names too, and its ctime changes with each of them
  input.linked = input.linked || linked;
  change.gone.emplace(path, std::move(input));
}

void Files::set_copy(const Node& node, const std::string& path, const SavedCopy& copy,
                     const LeadsTo& leads_to, Change& change) const {
  FileEntry& entry = *change.entry;
  // a hard link: the recorded copy has both names. (A copy that makes a changed file clean is
  // another one.)
  if (entry.exported && is_same_file(entry.exported->version, copy.version) &&
      (change.dirty || !node.dirty)) {
    entry.exported->names.add(path);
    entry.exported->version = copy.version;
    return;
  }
  // An input was exported under its name and renamed, and is now exported under another name:
  // results-dir also has the first copy.
  if (entry.imported && entry.exported) {
    for (const auto& name : entry.exported->names.list()) {
      if (name != path && entry.imported->names.contains(name) && !leads_to(name)) {
        add_gone(node, name, change);
      }
    }
  }
  if (copy.in_place) {
    keep_of_others(entry, path, leads_to);
  }
  entry.exported = ExportedCopy{{copy.version, Names(path)}};
}

// The copy in place becomes the origin. The other names of a file still have the old version on the
// PFS, so a file with these keeps its origin beside the copy.
void Files::replace_origin(const Node& node, const std::string& path, const LeadsTo& leads_to,
                           Change& change) const {
  FileEntry& entry = *change.entry;
  if (!entry.imported || entry.imported->names.had_several()) {
    return;
  }
  const auto others = entry.imported->names.contains(path) ? std::vector<std::string>()
                                                           : entry.imported->names.list();
  if (std::ranges::any_of(others, leads_to)) {
    return;
  }
  // The caller records this for a directory; under another name there is no record.
  if (!S_ISDIR(node.type)) {
    entry.imported->version = entry.exported->version;
  } else if (!others.empty()) {
    entry.imported->version = {};
  }
  for (const auto& name : others) {
    add_gone(node, name, change);
  }
  if (!others.empty()) {
    entry.imported->names = entry.exported->names;
  }
}

Change Files::exported(const Node& node, const std::string& path, const SavedCopy& copy,
                       const LeadsTo& leads_to) const {
  const FileEntry& before = of(node.id);
  Change change{.entry = before};
  add_replaced(node.linked, path, copy, change);
  set_copy(node, path, copy, leads_to, change);
  change.entry->exported->as_imported =
      !node.dirty && before.imported && (!before.exported || before.exported->as_imported);
  if (copy.in_place) {
    replace_origin(node, path, leads_to, change);
  }
  return change;
}

Change Files::copied(const Node* node, const std::string& path, const SavedCopy& copy,
                     const LeadsTo& leads_to) const {
  Change change{.dirty = true};
  add_replaced(node != nullptr && node->linked, path, copy, change);
  if (node == nullptr || !node->dirty) {
    return change;
  }
  const FileEntry& before = of(node->id);
  change.entry = before;
  set_copy(*node, path, copy, leads_to, change);
  change.entry->exported->as_imported = false;
  if (before.imported && before.imported->names.is_only(path) && before.exported &&
      before.exported->names.is_only(path) && is_before(before.exported->version, copy)) {
    change.entry->imported->version = before.exported->version;
  }
  return change;
}

// An input that this file replaced was also not removed by the job.
GoneInput Files::unloaded_input(const Node& node, const std::string& path) const {
  const auto& [imported, exported, parts] = of(node.id);
  const GoneInput* known = find_input(path);
  GoneInput input = known != nullptr ? *known : gone_input(node, path);
  if (known == nullptr && !(imported && imported->names.contains(path))) {
    input.origin = {};
  }
  if (exported && exported->names.contains(path)) {
    input.saved = exported->version;
  }
  input.unloaded = true;
  return input;
}

Change Files::unloaded(const Node& node, const std::string& path, bool last) const {
  Change change{
      .gone = {{path, unloaded_input(node, path)}}, .entry = of(node.id), .dirty = node.dirty};
  auto& [imported, exported, parts] = *change.entry;
  // A remote file always has an origin: if the process dies before the removal, the PFS still has
  // its content.
  if (node.remote) {
    parts = FileEntry::leaves;
    return change;
  }
  remove_name(imported, path);
  const bool is_result = exported && !(exported->as_imported && imported);
  remove_name(exported, path);
  if (!is_result || exported) {
    return change;
  }
  // The file was clean because of this copy: its other names must still be exported. An unchanged
  // input needs no export. If the process dies before the removal of the last name, the job may
  // give the file another name of its import, whose content it does not have.
  change.dirty = change.dirty || !last;
  if (last && imported) {
    if (parts.empty()) {
      imported->names.for_each([&](std::string_view name) { add_gone(node, name, change); });
    }
    imported.reset();
  }
  return change;
}

// If the process dies before the removal, a recovery then imports the file again. The removal does
// not count as a removal by the job.
Change Files::outdated(const Node& node, const std::string& path, bool last) const {
  Change change{.entry = of(node.id), .dirty = node.dirty};
  FileEntry& entry = *change.entry;
  if (!last) {
    if (entry.imported) {
      entry.imported->names.remove(path);
    }
    return change;
  }
  if (entry.is_whole_import()) {
    for (const auto& name : entry.imported->names.list()) {
      if (name != path) {
        add_gone(node, name, change);
      }
    }
  }
  entry.parts = FileEntry::leaves;
  return change;
}

Change Files::linked(const Node& node, std::span<const std::string> names) const {
  Change change{.entry = of(node.id), .dirty = node.dirty};
  for (const auto& name : names) {
    if (gone_.contains(name)) {
      change.gone.emplace(name, std::nullopt);
    }
    change.entry->imported->names.add(name);
  }
  return change;
}

Change Files::revoked(const Node& node, const StaleNames& names) const {
  Change change{.entry = of(node.id), .dirty = node.dirty};
  auto& [imported, exported, parts] = *change.entry;
  const bool was_result = exported && !exported->as_imported;
  // The file that has the name now has replaced that version; its own entry no longer has a record
  // of it.
  for (const auto& name : names.imported) {
    remove_name(imported, name);
    add_gone(node, name, change);
  }
  for (const auto& name : names.exported) {
    remove_name(exported, name);
  }
  if (imported && imported->names.empty()) {  // its names were lost before
    imported.reset();
  }
  change.dirty = change.dirty || (!exported && (was_result || !imported));
  return change;
}

std::vector<std::pair<std::uint64_t, FileEntry>> Files::forgotten(
    std::span<const std::string> paths) const {
  const std::unordered_set<std::string_view> wanted(paths.begin(), paths.end());
  std::vector<std::pair<std::uint64_t, FileEntry>> changed;
  for (const auto& [id, entry] : entries_) {
    FileEntry after = entry;
    for (const auto& name : entry.imported ? entry.imported->names.list() : Names().list()) {
      if (wanted.contains(name)) {
        remove_name(after.imported, name);
      }
    }
    if (after != entry) {
      changed.emplace_back(id, std::move(after));
    }
  }
  return changed;
}

}  // namespace efs::ledger
