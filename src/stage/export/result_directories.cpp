// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/result_directories.hpp"

#include <cerrno>
#include <utility>

#include "stage/pfs/attributes.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

constexpr const char* stays_unchanged =
    "its times only: the rest has changed on the PFS since it was staged in, and the job has not "
    "changed it";
constexpr const char* stays_unknown =
    "its times only: it was there already, and the rest stays as it is on the PFS";
constexpr const char* changed_by_both =
    "its mode, owner, ACLs or extended attributes changed on the PFS since it was staged in or "
    "made there; the job's are kept in the buffer only";
constexpr const char* was_replaced =
    "replaced attributes that changed on the PFS since it was staged in";

void tell(std::string& reason, const std::string& more) {
  reason += (reason.empty() ? "" : "; ") + more;
}

/// Adds the error of a claim that could not be given back to the outcome `done`.
void add_claim_left(const Error& error, Status& done, std::string& reason) {
  if (done) {
    tell(reason, describe(error));
  } else {
    done.error().what = describe(done.error()) + "; " + describe(error);
  }
}

bool may_not_claim(const Error& error) {
  return error.code == EACCES || error.code == EPERM || error.code == EROFS ||
         error.code == ENOSPC || error.code == EDQUOT;
}

}  // namespace

ReceiptEntry ResultDirectories::failed(const fs::WalkItem& item, const Error& error) {
  failures_.record_full(error);
  failed_.insert(item.path);
  return receipt_entry(item, Action::failed, describe(error));
}

PlacedDirectory ResultDirectories::state_of(const fs::WalkItem& item) const {
  return placed_ == nullptr
             ? PlacedDirectory()
             : placed_->directory({.name = item.path, .own = buffer_.own_path(item.path)});
}

// If this record fails, the attributes count as another user's after a kill or another change: at
// worst a conflict.
void ResultDirectories::record_coming(const fs::WalkItem& item, const DirectoryAttributes* has) {
  if (placed_ != nullptr) {
    (void)placed_->coming_directory({.name = item.path, .own = buffer_.own_path(item.path)}, has);
  }
}

void ResultDirectories::record_placed(const fs::WalkItem& item,
                                      std::optional<std::uint64_t> version) {
  if (placed_ != nullptr) {
    (void)placed_->placed_directory({.name = item.path, .own = buffer_.own_path(item.path)},
                                    version);
  }
}

void ResultDirectories::record_applied(const fs::WalkItem& item, std::uint64_t version) {
  if (placed_ != nullptr) {
    (void)placed_->applied_directory({.name = item.path, .own = buffer_.own_path(item.path)},
                                     version);
  }
}

void ResultDirectories::record_made(const fs::WalkItem& item, const DirectoryAttributes& has) {
  if (placed_ != nullptr) {
    (void)placed_->made_directory({.name = item.path, .own = buffer_.own_path(item.path)}, has);
  }
}

std::vector<ReceiptEntry> ResultDirectories::make(const std::vector<DirectoryToMake>& directories) {
  std::vector<ReceiptEntry> entries;
  for (const auto& directory : directories) {
    if (auto made = make_one(*directory.item); !made) {
      entries.push_back(failed(*directory.item, made.error()));
    }
  }
  if (auto synced = tree_.sync_with_made({}); !synced) {
    not_durable_ = describe(synced.error());
  }
  return entries;
}

void ResultDirectories::show_hidden() {
  const auto paths = tree_.hidden();
  for (const auto& path : paths) {
    // if that fails, finish() reports it
    if (tree_.is_hidden(path) && !tree_.show(path)) {
      (void)tree_.unhide(path);
    }
  }
  if (paths.empty()) {
    return;
  }
  if (auto synced = tree_.sync_with_made({}); !synced) {
    not_durable_ = describe(synced.error());
  }
}

// A process that is killed before finish() leaves a directory without its attributes. A later
// process must recognise it as this store's, and must recognise attributes that another user has
// set since.
Status ResultDirectories::make_one(const fs::WalkItem& item) {
  bool is_noted = false;
  const Status made = tree_.make(item, [&] { is_noted = true, record_coming(item, nullptr); });
  if (is_noted && !tree_.is_new(item.path)) {
    record_placed(item, {});  // another process was faster
  }
  if (is_noted && made && placed_ != nullptr && tree_.is_new(item.path)) {
    if (const auto has = tree_.attributes_of(item.path)) {
      record_made(item, *has);
    }
  }
  return made;
}

// Children first: a parent's final mode may forbid access to them.
std::vector<ReceiptEntry> ResultDirectories::finish(const std::vector<DirectoryToMake>& directories,
                                                    Patience& patience) {
  std::vector<ReceiptEntry> entries;
  const bool at_once = tree_.sync_all_at_once(directories.size());
  std::vector<Finished> all;
  for (auto it = directories.rbegin(); it != directories.rend(); ++it) {
    if (failed_.contains(it->item->path)) {
      continue;
    }
    auto finished = finish_one(*it, !at_once, patience);
    if (finished) {
      all.push_back(std::move(*finished));
    } else {
      entries.push_back(failed(*it->item, finished.error()));
    }
  }
  const Status synced = at_once ? tree_.sync_all() : Status();
  const std::string doubt = !synced ? describe(synced.error()) : not_durable_;
  for (const auto& one : all) {
    if (auto entry = outcome_of(one, doubt)) {
      entries.push_back(std::move(*entry));
    }
  }
  return entries;
}

/// Returns nullopt if the directory is not reported. `doubt`: why its attributes may not survive a
/// crash; "" if they will.
std::optional<ReceiptEntry> ResultDirectories::outcome_of(const Finished& finished,
                                                          const std::string& doubt) {
  const auto& item = *finished.directory->item;
  if (!doubt.empty()) {
    return failed(item, {EIO, doubt});
  }
  // Only now: a crash of the PFS may have restored the former attributes.
  if (finished.version) {
    record_placed(item, finished.version);
  }
  if (finished.stays) {
    return receipt_entry(item, Action::conflict, finished.reason);
  }
  if (!finished.directory->reported && finished.lost.empty()) {
    return std::nullopt;
  }
  std::string reason = finished.reason;
  if (!finished.lost.empty()) {
    tell(reason, "without " + finished.lost);
  }
  return receipt_entry(item, Action::staged_out, std::move(reason));
}

Result<ResultDirectories::Finished> ResultDirectories::finish_one(const DirectoryToMake& directory,
                                                                  bool fsync, Patience& patience) {
  const auto& item = *directory.item;
  Finished finished{.directory = &directory};
  const PlacedDirectory state = state_of(item);
  const bool is_made = tree_.is_new(item.path),
             is_begun = state.interrupted || state.unfinished || state.applied;
  if (!directory.apply_attributes && !is_made && !is_begun) {
    return finished;
  }
  const Status done = !in_place_ || is_made ? apply(item, fsync, nullptr, finished)
                                            : merge(item, fsync, finished, patience);
  if (!done) {
    return std::unexpected(done.error());
  }
  return finished;
}

Status ResultDirectories::apply(const fs::WalkItem& item, bool fsync,
                                const DirectoryAttributes* has, Finished& finished) {
  record_coming(item, has);
  auto done = tree_.finish(item, in_place_, fsync);
  if (!done) {
    return std::unexpected(done.error());
  }
  finished.lost = std::move(done->lost);
  finished.refused = done->refused;
  finished.version = directory_version(done->has);
  record_applied(item, *finished.version);
  return {};
}

/// Times need no claim.
Status ResultDirectories::merge(const fs::WalkItem& item, bool fsync, Finished& finished,
                                Patience& patience) {
  auto decided = decide(item);
  if (!decided) {
    return std::unexpected(decided.error());
  }
  if (!takes_ours(decided->merge, rules_)) {
    return leave_theirs(item, fsync, *decided, finished);
  }
  const auto parent = tree_.directory(parent_of(item.path));
  if (!parent && !may_not_claim(parent.error())) {
    return with_context(parent.error(), "opening its parent directory");
  }
  auto claim =
      parent ? claim_name(*parent, item, patience) : Result<std::optional<NameClaim>>(std::nullopt);
  if (!claim) {
    return std::unexpected(claim.error());
  }
  decided = decide(item);  // no other efs process changes it from here on
  Status done = decided ? act(item, fsync, *decided, finished) : std::unexpected(decided.error());
  const Status back = *claim ? (*claim)->give_back() : Status();
  if (!back) {
    add_claim_left(back.error(), done, finished.reason);
  }
  return done;
}

Status ResultDirectories::act(const fs::WalkItem& item, bool fsync, const Decided& decided,
                              Finished& finished) {
  return takes_ours(decided.merge, rules_) ? replace(item, fsync, decided, finished)
                                           : leave_theirs(item, fsync, decided, finished);
}

Result<ResultDirectories::Decided> ResultDirectories::decide(const fs::WalkItem& item) {
  auto theirs = tree_.attributes_of(item.path);
  if (!theirs) {
    return std::unexpected(theirs.error());
  }
  const auto& wanted = item.attributes;
  const DirectoryAttributes ours{.mode = wanted.st_mode & 07777U,
                                 .uid = wanted.st_uid,
                                 .gid = group_of(item, theirs->gid),
                                 .xattrs = item.xattrs};
  Decided decided{.known = {}, .there = std::move(*theirs)};
  decided.theirs = directory_version(decided.there);
  decided.known = known_of(item, decided.theirs);
  decided.merge = merge_directory(decided.known, directory_version(ours), decided.theirs);
  const bool is_known =
      decided.merge == DirectoryMerge::same || decided.merge == DirectoryMerge::take_ours;
  const PlacedDirectory state = state_of(item);
  // The directory may have some of the job's attributes. A directory that was made for the job,
  // perhaps with its mode, also has the job's attributes.
  if (!is_known && state.interrupted) {
    decided.merge = is_between(state.was, ours, decided.there) ? DirectoryMerge::take_ours
                                                               : DirectoryMerge::conflict;
  } else if (!is_known && state.unfinished) {
    decided.merge = DirectoryMerge::conflict;
  }
  return decided;
}

Status ResultDirectories::leave_theirs(const fs::WalkItem& item, bool fsync, const Decided& decided,
                                       Finished& finished) {
  finished.stays = decided.merge == DirectoryMerge::conflict;
  if (finished.stays) {
    return finished.reason = changed_by_both, Status();
  }
  if (decided.merge == DirectoryMerge::same) {
    finished.version = decided.theirs;
  } else {
    finished.reason = decided.known ? stays_unchanged : stays_unknown;
  }
  return tree_.finish_times(item, fsync);
}

// A failure may leave some of the new attributes, which also count as the job's. (A directory that
// was made stays unfinished.)
Status ResultDirectories::replace(const fs::WalkItem& item, bool fsync, const Decided& decided,
                                  Finished& finished) {
  if (const Status applied = apply(item, fsync, &decided.there, finished); !applied) {
    if (const auto now = tree_.attributes_of(item.path)) {
      record_placed(item, directory_version(*now));
    }
    return applied;
  }
  if (decided.merge != DirectoryMerge::conflict) {
    return {};
  }
  finished.stays = finished.refused;
  finished.reason = !finished.stays ? was_replaced
                                    : std::string(changed_by_both) +
                                          ("; they could not be replaced: " + finished.lost);
  if (!finished.refused) {
    return {};
  }
  finished.version.reset();
  record_placed(item, {});
  return {};
}

/// nullopt if this user cannot create files in the parent, or if the PFS is full: a full PFS still
/// accepts attributes.
Result<std::optional<NameClaim>> ResultDirectories::claim_name(PfsRef parent,
                                                               const fs::WalkItem& item,
                                                               Patience& patience) {
  const std::string name = leaf_of(item.path), claimant = partial_name(name, options_.partial_tag);
  for (bool grant_owner_access = false;;) {
    auto claim = NameClaim::take(pfs_, parent, name, claimant);
    if (claim) {
      return std::optional<NameClaim>(std::move(*claim));
    }
    if (claim.error().code == EACCES && !std::exchange(grant_owner_access, true) &&
        tree_.grant_owner_access(parent_of(item.path))) {
      continue;
    }
    if (may_not_claim(claim.error())) {
      return std::optional<NameClaim>();
    }
    if (!is_held(claim.error())) {
      return with_context(claim.error(), "claiming its name");
    }
    is_patient_ = is_patient_ && patience.wait({claim.error().what});
    if (!is_patient_) {
      return std::unexpected(given_up(claim.error()));
    }
  }
}

/// The version that this store has set last, or the imported version.
std::optional<std::uint64_t> ResultDirectories::known_of(const fs::WalkItem& item,
                                                         std::uint64_t theirs) const {
  const PlacedDirectory state = state_of(item);
  if (state.applied == theirs) {
    return theirs;
  }
  if (state.version) {
    return state.version;
  }
  const bool came_in = item.pfs.origin && item.pfs.origin->inode == 0 &&
                       item.pfs.origin->size != 0 && buffer_.own_path(item.path) == item.path;
  return came_in ? std::optional(item.pfs.origin->size) : std::nullopt;
}

std::vector<ReceiptEntry> ResultDirectories::leave(const std::vector<DirectoryToMake>& directories,
                                                   const std::string& reason) {
  std::vector<ReceiptEntry> entries;
  for (const auto& directory : directories) {
    if (directory.reported) {
      entries.push_back(receipt_entry(*directory.item, Action::not_saved, reason));
    }
  }
  return entries;
}

}  // namespace efs::stage
