// SPDX-License-Identifier: BSD-3-Clause
#include "stage/versions/placed_names.hpp"

#include <fcntl.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {
namespace {

using ledger::Event, ledger::Ledger;

std::optional<ledger::File> file_of(const struct stat* st) {
  return st == nullptr ? std::nullopt : std::optional(ledger::file_of(*st));
}

/// Since when files of unknown origin appear if the record of this copy is lost. None appears where
/// a name is removed.
std::optional<Nanoseconds> loss_of(const struct stat* copy) {
  return copy == nullptr ? std::nullopt : std::optional(to_ns(copy->st_ctim));
}

}  // namespace

bool may_meet_others(const config::JobConfig& config) {
  const bool is_shared = config::has_results_in_place(config) || config.nodes > 1 || config.merges;
  return !config.results_dir.empty() && (is_shared || config.existing != config::Existing::replace);
}

ledger::NameKey PlacedNames::key(std::string_view name) const {
  const std::string whole = results_dir_ + "/" + std::string(name);
  return checksum(std::as_bytes(std::span(whole)));
}

template <typename Look>
auto PlacedNames::in_ledger(Look look) const {
  decltype(look(std::declval<const Ledger&>())) found{};
  log_->read([&](const Ledger& known) { found = look(known); });
  return found;
}

WhoseCopy PlacedNames::look(const PlacedName& name, const struct stat& there, bool by_ctime) const {
  const auto ctime = by_ctime ? ledger::Ctime::counts : ledger::Ctime::ignored;
  return in_ledger([&, file = ledger::file_of(there), named = at(name)](const Ledger& known) {
    return known.whose(named, file, ctime);
  });
}

bool PlacedNames::knows(std::string_view name) const {
  return in_ledger([&](const Ledger& known) { return known.knows(key(name)); });
}

bool PlacedNames::has_removed(std::string_view name) const {
  return in_ledger([&](const Ledger& known) { return known.has_removed(key(name)); });
}

bool PlacedNames::is_incomplete() const {
  return in_ledger([](const Ledger& known) { return known.is_incomplete(); });
}

Status PlacedNames::coming(const PlacedName& name, const struct stat* copy,
                           const struct stat* before) {
  ledger::Announced announced{.at = at(name), .version = file_of(copy), .before = file_of(before)};
  if (announced.version) {
    announced.version->version.ctime = fs::Origin::any_ctime;
  }
  const auto events = [&](const Ledger& known) {
    std::vector<Event> all;
    if (announced.before) {
      if (const auto arrived = known.arrived(announced.at.name, *announced.before)) {
        all.emplace_back(*arrived);
      }
    }
    all.emplace_back(announced);
    return all;
  };
  return log_->append(events, loss_of(copy));
}

Status PlacedNames::placed(const PlacedName& name, const struct stat* copy, bool is_shared) {
  const ledger::Name named = at(name);
  Event event = ledger::Removed{named};
  if (copy != nullptr) {
    ledger::File file = ledger::file_of(*copy);
    if (is_shared) {
      file.version.ctime = 0;
    }
    event = ledger::Exported{.at = named, .file = file};
  }
  return log_->append([&](const Ledger&) { return std::vector{event}; }, loss_of(copy));
}

Status PlacedNames::forget(std::string_view name) {
  const auto events = [at = key(name)](const Ledger& known) {
    return known.knows(at) ? std::vector<Event>{ledger::Imported{at}} : std::vector<Event>();
  };
  return log_->append(events, {});
}

PlacedDirectory PlacedNames::directory(const PlacedName& name) const {
  return in_ledger([&](const Ledger& known) { return known.directory(at(name)); });
}

template <typename Next>
Status PlacedNames::give(const PlacedName& name, Next next) {
  const auto events = [&, named = at(name)](const Ledger& known) {
    return std::vector<Event>{
        ledger::DirectoryGiven{.at = named, .state = next(known.directory(named))}};
  };
  return log_->append(events, {});
}

Status PlacedNames::coming_directory(const PlacedName& name, const DirectoryAttributes* has) {
  const auto shape = has == nullptr ? std::nullopt : std::optional(shape_of(*has));
  return give(name, [&](const PlacedDirectory& before) { return ledger::begun(before, shape); });
}

Status PlacedNames::made_directory(const PlacedName& name, const DirectoryAttributes& has) {
  return give(name, [&](const PlacedDirectory&) {
    return PlacedDirectory{
        .version = directory_version(has), .was = shape_of(has), .unfinished = true};
  });
}

Status PlacedNames::applied_directory(const PlacedName& name, std::uint64_t version) {
  return give(name,
              [&](const PlacedDirectory& before) { return ledger::applied(before, version); });
}

Status PlacedNames::placed_directory(const PlacedName& name, std::optional<std::uint64_t> version) {
  return give(name, [&](const PlacedDirectory& before) { return ledger::done(before, version); });
}

std::vector<fs::Origin> PlacedNames::copies() const {
  return in_ledger([](const Ledger& known) { return known.copies(); });
}

namespace {

/// True if it is the version that the buffer imported.
bool is_staged_in(const PlanEntry& entry, const struct stat& there, fs::Staging& staging) {
  const auto item = staging.find(entry.path);
  if (!item || !item->pfs.origin) {
    return false;
  }
  if (entry.type == EntryType::symlink) {
    return S_ISLNK(there.st_mode) && item->target == entry.target;
  }
  return S_ISREG(there.st_mode) && is_copy(there, *item->pfs.origin) &&
         fs::is_same_file(*item->pfs.origin, entry.origin);
}

}  // namespace

void forget_staged(const Plan& plan, PfsIo& pfs, fs::Staging& staging, PlacedNames& placed) {
  const auto top = pfs.open(no_directory, plan.root_dir, passage_flags);
  for (const auto& entry : plan.entries) {
    if (entry.type == EntryType::directory || !placed.knows(entry.from())) {
      continue;
    }
    const auto directory = top ? pfs.open_beneath(*top, parent_of(entry.from()), passage_flags)
                               : std::unexpected(top.error());
    const auto there = directory ? pfs.lstat(*directory, leaf_of(entry.from()))
                                 : std::unexpected(directory.error());
    if (!there ||
        placed.look({.name = entry.from(), .own = entry.path}, *there, true) != WhoseCopy::theirs) {
      continue;
    }
    if (is_staged_in(entry, *there, staging)) {
      (void)placed.forget(entry.from());
    }
  }
}

void record_came_in(const PlanEntry& entry, fs::Staging& staging, PlacedNames& placed) {
  const auto item = staging.find(entry.path);
  if (entry.from() != entry.path || !item || !item->pfs.origin || item->pfs.origin->inode != 0 ||
      item->pfs.origin->size == 0) {
    return;
  }
  const PlacedName name{.name = entry.path, .own = entry.path};
  if (placed.directory(name).version != item->pfs.origin->size) {
    (void)placed.placed_directory(name, item->pfs.origin->size);
  }
}

bool is_ours(const PlacedNames* placed, const PlacedName& name, const fs::WalkItem& item,
             const struct stat& there) {
  const auto whose = placed == nullptr
                         ? WhoseCopy::unknown
                         : placed->look(name, there, item.pfs.origin || item.pfs.replaced);
  return whose == WhoseCopy::ours || (is_unknown(whose) && is_origin(there, item));
}

}  // namespace efs::stage
