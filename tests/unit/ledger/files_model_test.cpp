// SPDX-License-Identifier: BSD-3-Clause
// The ledger of the buffer's files beside a model that knows every content. Random work of a job,
// imports, exports, unloads and other users' deeds; the process dies between any two records.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fs/ledger_records.hpp"
#include "ledger/files.hpp"
#include "support/temp.hpp"

namespace efs::ledger {
namespace {

using Path = std::string;

/// The event as a later process reads it.
FileEvent reread(const FileEvent& event) {
  std::vector<std::byte> bytes;
  if (const auto* given = std::get_if<FileGiven>(&event)) {
    fs::Inode inode;
    inode.ino = given->id;
    fs::encode(fs::staging_of(inode, given->entry), bytes);
    return fs::event_of(std::get<fs::SetStaging>(fs::decode(bytes).value().value()));
  }
  if (const auto* gone = std::get_if<GoneGiven>(&event)) {
    fs::encode(fs::gone_record_of(gone->path, gone->input), bytes);
    return fs::event_of(std::get<fs::Gone>(fs::decode(bytes).value().value()));
  }
  return event;
}

class World {
 public:
  explicit World(std::uint64_t seed)
      : random_(seed), in_place_(pick(2) == 0), links_(pick(2) == 0) {
    for (const Path& path : paths_) {
      root()[path] = {new_version(), ++contents_, true};
    }
  }

  void step() {
    const Path path = any(), other = any();
    switch (pick(15)) {
      case 0:
      case 1: return import(path);
      case 2: return links_ ? import_link(path, other) : import(other);
      case 3: return create(path);
      case 4:
      case 5: return write(path);
      case 6: return links_ ? link(path, other) : write(other);
      case 7: return rename(path, other);
      case 8: return unlink(path);
      case 9:
      case 10: return export_file(path);
      case 11: return unload(path);
      case 12: return bring_again(path);
      case 13: return pick(3) == 0 ? others_replace(path) : forget(path);
      default: return pick(2) == 0 ? die() : compact();
    }
  }

  /// "" if the ledger agrees with the model.
  std::string disagreement() const {
    for (const auto& [path, id] : names_) {
      if (const std::string what = check(path, id); !what.empty()) {
        return path + ": " + what;
      }
    }
    for (const Path& path : paths_) {
      const bool counts = counts_as_removed(path);
      if (inputs_.contains(path) && !names_.contains(path) && !counts) {
        return path + ": a removed input is forgotten";
      }
      if (counts && !inputs_.contains(path) && !may_count_.contains(path)) {
        return path + ": is no removed input";
      }
    }
    return "";
  }

 private:
  struct Content {
    int content = 0;
    bool dirty = false;
  };

  struct There {
    FileVersion version;
    int content = 0;
    bool foreign = false;  // another user's, and not imported
  };

  using Directory = std::map<Path, There>;

  std::uint64_t pick(std::uint64_t of) { return random_() % of; }

  const Path& any() { return paths_[pick(paths_.size())]; }

  Directory& root() { return pfs_[0]; }

  Directory& results() { return pfs_[in_place_ ? 0 : 1]; }

  static const There* find(const Directory& directory, const Path& path) {
    const auto there = directory.find(path);
    return there == directory.end() ? nullptr : &there->second;
  }

  FileVersion new_version() {
    ++now_;
    return {.device = 1,
            .inode = static_cast<std::uint64_t>(now_),
            .size = 1 + pick(2),
            .mtime = now_,
            .ctime = now_};
  }

  Node node(std::uint64_t id) const {
    return {.id = id,
            .type = S_IFREG,
            .dirty = files_.at(id).dirty,
            .linked = std::ranges::count(names_, id, &Names::value_type::second) > 1};
  }

  LeadsTo leads_to(std::uint64_t id) const {
    return [this, id](const Path& path) {
      const auto name = names_.find(path);
      return name != names_.end() && name->second == id;
    };
  }

  NameEntry entry(const Path& path, std::uint64_t id) const {
    NameEntry entry = ledger_.entry_of(node(id), path, leads_to(id));
    if (const auto gone = ledger_.gone().find(path); gone != ledger_.gone().end()) {
      entry.replaced = std::make_shared<GoneInput>(gone->second);
    } else if (!entry.origin) {
      ledger_.for_each([&](std::uint64_t other, const FileEntry& its) {
        if (other != id && its.imported && its.imported->names.contains(path) && has_name(other)) {
          entry.replaced = std::make_shared<GoneInput>(ledger_.gone_input(node(other), path));
        }
      });
    }
    return entry;
  }

  bool has_name(std::uint64_t id) const {
    return std::ranges::any_of(names_, [&](const auto& name) { return name.second == id; });
  }

  bool is_import(const Path& path) const {
    bool found = false;
    ledger_.for_each([&](std::uint64_t, const FileEntry& its) {
      found = found || (its.imported && its.imported->names.contains(path));
    });
    return found;
  }

  static bool is_known(const There& there, const NameEntry& entry) {
    const auto is = [&](const std::optional<FileVersion>& known) {
      return known && is_version(*known, there.version, Ctime::counts);
    };
    return is(entry.origin) || is(entry.saved) ||
           (entry.replaced && (is(entry.replaced->origin) || is(entry.replaced->saved)));
  }

  void append(const FileEvent& event) {
    ledger_.make_room();
    ledger_.apply(event);
    log_.push_back(event);
  }

  /// False if the process died before the last record.
  bool carry_out(std::uint64_t id, const Change& change) {
    for (const auto& [path, input] : change.gone) {
      append(GoneGiven{path, input});
      if (pick(20) == 0) {
        die();
        return false;
      }
    }
    if (change.entry) {
      append(FileGiven{id, *change.entry});
      files_.at(id).dirty = change.dirty;
    }
    return true;
  }

  /// The import of this version ends what other files have of the name.
  bool takes(const Path& path, const FileVersion& version) {
    return revoke({.path = path, .version = version}, in_place_ ? Side::both : Side::inputs);
  }

  void import(const Path& path) {
    const There* there = find(root(), path);
    if (there == nullptr || names_.contains(path) || is_import(path) ||
        !takes(path, there->version)) {
      return;
    }
    const std::uint64_t id = ++last_id_;
    files_[id] = {.content = there->content};
    append(FileGiven{id, {.imported = PfsCopy{there->version, efs::ledger::Names(path)}}});
    append(FileNamed{id});
    names_[path] = id;
    inputs_.insert(path);
    may_count_.erase(path);
    root()[path].foreign = false;
  }

  /// The PFS has a hard link.
  void import_link(const Path& path, const Path& further) {
    const auto name = names_.find(path);
    if (name == names_.end() || names_.contains(further) || is_import(further)) {
      return;
    }
    const NameEntry known = entry(path, name->second);
    const There* there = find(root(), path);
    if (!known.content || !known.origin || there == nullptr ||
        !is_same_file(*known.origin, there->version) || !takes(further, there->version)) {
      return;
    }
    const auto id = name->second;
    root()[further] = *there;
    names_[further] = id;
    inputs_.insert(further);
    const std::vector<Path> names{further};
    const Change change = ledger_.linked(node(id), names);
    for (const auto& [gone, input] : change.gone) {
      append(GoneGiven{gone, input});
    }
    append(FileGiven{id, *change.entry});
  }

  void create(const Path& path) {
    if (!names_.contains(path)) {
      files_[++last_id_] = {.content = ++contents_, .dirty = true};
      names_[path] = last_id_;
    }
  }

  void write(const Path& path) {
    if (const auto name = names_.find(path); name != names_.end()) {
      files_.at(name->second) = {.content = ++contents_, .dirty = true};
    }
  }

  void link(const Path& path, const Path& further) {
    if (names_.contains(path) && !names_.contains(further)) {
      names_[further] = names_.at(path);
    }
  }

  void unlink(const Path& path) {
    const auto name = names_.find(path);
    if (name == names_.end()) {
      return;
    }
    const auto id = name->second;
    const Node before = node(id);
    if (!before.linked) {
      append(LastNameLost{before});
    }
    names_.erase(path);
    if (!before.linked) {
      append(FileFreed{id});
      files_.erase(id);
    }
  }

  void rename(const Path& from, const Path& to) {
    if (!names_.contains(from) || (names_.contains(to) && names_.at(to) == names_.at(from))) {
      return;
    }
    unlink(to);
    names_[to] = names_.at(from);
    names_.erase(from);
  }

  /// False if the process died before the last record.
  bool revoke(const PfsName& name, Side side = Side::both) {
    const ResultName same;
    const TakenNames taken({&name, 1}, side, same);
    std::vector<std::uint64_t> found;
    ledger_.for_each([&](std::uint64_t id, const FileEntry& its) {
      if (!taken.stale(id, its, leads_to(id)).empty()) {
        found.push_back(id);
      }
    });
    return std::ranges::all_of(found, [&](std::uint64_t id) {
      return carry_out(id,
                       ledger_.revoked(node(id), taken.stale(id, ledger_.of(id), leads_to(id))));
    });
  }

  /// A file of another user stays.
  void export_file(const Path& path) {
    const auto name = names_.find(path);
    if (name == names_.end()) {
      return;
    }
    const auto id = name->second;
    const NameEntry known = entry(path, id);
    const There* there = find(results(), path);
    if (!known.due_for_export(S_IFREG) || (there != nullptr && !is_known(*there, known))) {
      return;
    }
    if (!revoke({.path = path, .by = id})) {
      return;
    }
    // an earlier copy has got its name: the next announcement may come to nothing
    if (there != nullptr && !carry_out(id, copied(id, path, there->version, known))) {
      return;
    }
    FileVersion version = new_version();
    version.ctime = FileVersion::any_ctime;
    if (!carry_out(id, copied(id, path, version, known)) || goes_wrong()) {
      return;
    }
    version.ctime = ++now_;
    results()[path] = {version, files_.at(id).content};
    if (in_place_) {
      may_count_.insert(path);
    }
    if (goes_wrong()) {
      return;
    }
    if (pick(4) == 0) {  // a program has written to it meanwhile
      files_.at(id) = {.content = ++contents_, .dirty = true};
      (void)carry_out(id, copied(id, path, version, known));
      return;
    }
    Change change = ledger_.exported(
        node(id), path,
        {.version = version, .in_place = in_place_, .replaced = known.replaced.get()},
        leads_to(id));
    (void)carry_out(id, change);
  }

  Change copied(std::uint64_t id, const Path& path, const FileVersion& version,
                const NameEntry& known) const {
    const Node now = node(id);
    return ledger_.copied(
        &now, path, {.version = version, .in_place = in_place_, .replaced = known.replaced.get()},
        leads_to(id));
  }

  bool goes_wrong() {
    if (pick(8) != 0) {
      return false;
    }
    if (pick(2) == 0) {
      die();
    }
    return true;
  }

  /// efs removes the name of a clean file.
  void unload(const Path& path) {
    const auto name = names_.find(path);
    if (name == names_.end()) {
      return;
    }
    const auto id = name->second;
    const NameEntry known = entry(path, id);
    if (known.dirty || !known.on_pfs()) {
      return;
    }
    const bool last = !node(id).linked;
    inputs_.erase(path);
    may_count_.insert(path);
    if (!carry_out(id, ledger_.unloaded(node(id), path, last))) {
      return;
    }
    if (!is_import(path)) {
      may_count_.erase(path);
    }
    if (!goes_wrong()) {
      unlink(path);
    }
  }

  /// A start removes an input to import it again.
  void bring_again(const Path& path) {
    const auto name = names_.find(path);
    if (name == names_.end() || !entry(path, name->second).is_as_imported()) {
      return;
    }
    const auto id = name->second;
    const bool last = !node(id).linked;
    inputs_.erase(path);
    may_count_.insert(path);
    if (carry_out(id, ledger_.outdated(node(id), path, last)) && !goes_wrong()) {
      unlink(path);
    }
  }

  /// A stage-out has removed the input from the PFS, because the job has.
  void forget(const Path& path) {
    if (names_.contains(path) || !counts_as_removed(path) || !revoke({.path = path})) {
      return;
    }
    const std::vector<Path> one{path};
    append(GoneGiven{path, {}});
    for (auto& [id, its] : ledger_.forgotten(one)) {
      append(FileGiven{id, std::move(its)});
    }
    inputs_.erase(path);
    may_count_.erase(path);
    root().erase(path);
  }

  void others_replace(const Path& path) {
    (pick(2) == 0 ? root() : results())[path] = {new_version(), ++contents_, true};
  }

  bool counts_as_removed(const Path& path) const {
    if (names_.contains(path)) {
      return false;
    }
    const auto gone = ledger_.gone().find(path);
    bool found = gone != ledger_.gone().end() && !gone->second.unloaded;
    ledger_.for_each([&](std::uint64_t, const FileEntry& its) {
      found = found || (its.is_whole_import() && its.imported->names.contains(path));
    });
    return found;
  }

  Files replayed() {
    Files files;
    for (const auto& event : log_) {
      for (auto times = 1 + pick(2); times > 0; --times) {  // an event that is applied again
        files.apply(reread(event));
      }
    }
    return files;
  }

  void die() { ledger_ = replayed(); }

  void compact() {
    log_.clear();
    ledger_.for_each(
        [&](std::uint64_t id, const FileEntry& its) { log_.emplace_back(FileGiven{id, its}); });
    for (const auto& [path, input] : ledger_.gone()) {
      log_.emplace_back(GoneGiven{path, input});
    }
  }

  std::string check(const Path& path, std::uint64_t id) const {
    const NameEntry known = entry(path, id);
    for (const Directory& directory : pfs_) {
      const There* there = find(directory, path);
      if (there != nullptr && there->foreign && is_known(*there, known)) {
        return "another user's file counts as known";
      }
    }
    const bool is_input = in_place_ && !links_ && inputs_.contains(path);
    const There* input = is_input ? find(pfs_[0], path) : nullptr;
    if (input != nullptr && !input->foreign && !is_known(*input, known)) {
      return "the input, or what the store has put in its place, counts as another user's";
    }
    if (known.due_for_export(S_IFREG)) {
      return "";
    }
    const There* there = find(pfs_[known.saved && !in_place_ ? 1 : 0], path);
    if (there == nullptr) {
      return "counts as on the PFS";
    }
    const bool is_so = there->foreign || there->content == files_.at(id).content;
    return is_so ? "" : "the PFS has another content than the clean file";
  }

  using Names = std::map<Path, std::uint64_t>;

  std::mt19937_64 random_;
  const bool in_place_;
  const bool links_;  // the job and the PFS have files with several names
  const std::vector<Path> paths_{"a", "b", "c", "d"};
  Files ledger_;
  std::vector<FileEvent> log_;
  Directory pfs_[2];  // root-dir; results-dir, if it is another directory
  Names names_;       // of the buffer
  std::map<std::uint64_t, Content> files_;
  std::set<Path> inputs_;  // imported, and not removed by efs
  // exported in place, which makes some of them count as imported, or removed by efs in part only,
  // until the next import
  std::set<Path> may_count_;
  std::uint64_t last_id_ = 1;
  int contents_ = 0;
  Nanoseconds now_ = 10;
};

TEST_CASE("ledger: files beside a model, with random events and deaths", "[ledger][model]") {
  const auto seed = test::seed();
  for (std::uint64_t number = 0; number < 2000; ++number) {
    World world(seed + number);
    for (int step = 0; step < 80; ++step) {
      world.step();
      INFO("EFS_TEST_SEED=" << seed << ", world " << number << ", step " << step);
      REQUIRE(world.disagreement() == "");
    }
  }
}

}  // namespace
}  // namespace efs::ledger
