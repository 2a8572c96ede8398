// SPDX-License-Identifier: BSD-3-Clause
// The ledger beside a model that knows the origin of each file. Random exports, removals, imports
// and deeds of other users; processes die between any two steps, events are missed, and power loss
// takes the events since the last sync.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ledger/ledger.hpp"
#include "support/temp.hpp"

namespace efs::ledger {
namespace {

constexpr std::uint64_t names = 4, paths = 2;

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}

  void step() {
    const NameKey name = 1 + pick(names);
    switch (pick(12)) {
      case 0:
      case 1:
      case 2: return export_file({.name = name, .own = 100 + pick(paths)});
      case 3: return remove_file({.name = name, .own = 100 + pick(paths)});
      case 4:
      case 5: return others_replace(name);
      case 6: return others_write(name);
      case 7: pfs_.erase(name); return;
      case 8: return import(name);
      case 9: return die();
      case 10: synced_ = log_.size(); return;
      default: return compact();
    }
  }

  /// "" if the ledger agrees with what is known of the name.
  std::string disagreement() const {
    for (NameKey name = 1; name <= names; ++name) {
      for (NameKey own = 100; own < 100 + paths; ++own) {
        if (const std::string what = check({.name = name, .own = own}); !what.empty()) {
          return "name " + std::to_string(name) + ": " + what;
        }
      }
    }
    return "";
  }

  const std::set<WhoseCopy>& met() const { return met_; }

 private:
  struct There {
    FileVersion version;
    std::optional<NameKey> own;  // nullopt: another user put it there
  };

  std::uint64_t pick(std::uint64_t of) { return random_() % of; }

  FileVersion new_version() {
    ++now_;
    return {.device = 1,
            .inode = static_cast<std::uint64_t>(now_),
            .size = 1 + pick(2),
            .mtime = now_,
            .ctime = now_};
  }

  std::optional<File> there(NameKey name) const {
    const auto found = pfs_.find(name);
    return found == pfs_.end() ? std::nullopt : std::optional(File{found->second.version, false});
  }

  /// A later process may not know of an event that a full store had no room for.
  void append(const Event& event, std::optional<Nanoseconds> since = {}) {
    ledger_.apply(event);
    if (since && pick(20) == 0) {
      log_.emplace_back(Missed{*since});
      missed_ = true;
      return;
    }
    log_.push_back(event);
  }

  void announce(const Name& at, const std::optional<FileVersion>& version) {
    const auto before = there(at.name);
    Announced event{.at = at, .version = {}, .before = before};
    if (version) {
      event.version = File{*version, false};
      event.version->version.ctime = FileVersion::any_ctime;
    }
    if (const auto arrived = before ? ledger_.arrived(at.name, *before) : std::nullopt) {
      append(*arrived, before->version.ctime);
    }
    append(event, version ? std::optional(version->ctime) : std::nullopt);
  }

  /// True if the store goes on. It may die, or another user may be quicker.
  bool goes_on(NameKey name) {
    switch (pick(8)) {
      case 0: die(); return false;
      case 1: others_replace(name); return false;
      case 2: return false;  // the call fails
      default: return true;
    }
  }

  /// A file of another user that is known as such stays.
  bool is_conflict(const Name& at) const {
    const auto now = there(at.name);
    const auto whose = now ? ledger_.whose(at, *now, Ctime::counts) : WhoseCopy::unknown;
    return whose != WhoseCopy::ours && whose != WhoseCopy::unknown;
  }

  void export_file(const Name& at) {
    if (is_conflict(at)) {
      return;
    }
    FileVersion version = new_version();
    announce(at, version);
    if (!goes_on(at.name)) {
      return;
    }
    version.ctime = ++now_;
    pfs_[at.name] = {version, at.own};
    acted_.insert(at.name);
    if (goes_on(at.name)) {
      append(Exported{.at = at, .file = {version, false}}, version.ctime);
    }
  }

  void remove_file(const Name& at) {
    if (!pfs_.contains(at.name) || is_conflict(at)) {
      return;
    }
    announce(at, {});
    if (!goes_on(at.name)) {
      return;
    }
    pfs_.erase(at.name);
    if (goes_on(at.name)) {
      append(Removed{at});
      if (!missed_) {
        acted_.insert(at.name);
      }
    }
  }

  void others_replace(NameKey name) { pfs_[name] = {new_version(), {}}; }

  void others_write(NameKey name) {
    if (const auto found = pfs_.find(name); found != pfs_.end()) {
      found->second = {found->second.version, {}};
      found->second.version.mtime = found->second.version.ctime = ++now_;
    }
  }

  /// Another user's file is an input from now on.
  void import(NameKey name) {
    const auto now = there(name);
    if (now && ledger_.whose({.name = name}, *now, Ctime::counts) == WhoseCopy::theirs) {
      append(Imported{name});
      acted_.erase(name);
    }
  }

  void compact() {
    log_.clear();
    ledger_.snapshot([&](const Event& event) { log_.push_back(event); });
    synced_ = log_.size();
    missed_ = missed_ && ledger_.is_incomplete();
  }

  /// The process, or the machine.
  void die() {
    if (pick(6) == 0) {
      const std::size_t lost = pick(log_.size() - synced_ + 1);
      log_.resize(log_.size() - lost);
      forgot_ = forgot_ || lost > 0;
    }
    ledger_ = Ledger();
    // A series of events that is applied twice gives the same ledger.
    for (auto times = 1 + pick(2); times > 0; --times) {
      for (const auto& event : log_) {
        ledger_.make_room();
        ledger_.apply(event);
      }
    }
  }

  std::string check(const Name& at) const {
    const auto now = there(at.name);
    if (!now) {
      return "";
    }
    const auto& own = pfs_.at(at.name).own;
    const bool acted = acted_.contains(at.name);
    for (const Ctime ctime : {Ctime::counts, Ctime::ignored}) {
      const WhoseCopy whose = ledger_.whose(at, *now, ctime);
      met_.insert(whose);
      const bool says_ours = whose == WhoseCopy::ours || whose == WhoseCopy::of_another_path;
      if (says_ours && (!own || (whose == WhoseCopy::ours) != (*own == at.own))) {
        return "taken for the store's own";
      }
      if (acted && !forgot_ && whose == WhoseCopy::unknown) {
        return "what the store did is forgotten";
      }
      if (acted && !forgot_ && !missed_ && own && !says_ours) {
        return "the store's own is not known";
      }
      if (!missed_ && whose == WhoseCopy::unsure) {
        return "unsure without a loss";
      }
    }
    return "";
  }

  std::mt19937_64 random_;
  Ledger ledger_;
  std::vector<Event> log_;
  std::size_t synced_ = 0;
  Nanoseconds now_ = 10;
  std::map<NameKey, There> pfs_;
  std::set<NameKey> acted_;  // since an import
  bool missed_ = false;      // a record of an event is missing
  bool forgot_ = false;      // power loss took records
  mutable std::set<WhoseCopy> met_;
};

TEST_CASE("ledger: a model with random events, deaths and power loss", "[ledger][model]") {
  const auto seed = test::seed();
  std::set<WhoseCopy> met;
  for (std::uint64_t world_number = 0; world_number < 400; ++world_number) {
    World world(seed + world_number);
    for (int step = 0; step < 60; ++step) {
      world.step();
      INFO("EFS_TEST_SEED=" << seed << ", world " << world_number << ", step " << step);
      REQUIRE(world.disagreement() == "");
    }
    met.insert(world.met().begin(), world.met().end());
  }
  CHECK(met.size() == 5);
}

}  // namespace
}  // namespace efs::ledger
