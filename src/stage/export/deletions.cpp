// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/deletions.hpp"

#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "stage/export/selection.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/plan/input_list.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t files_in_a_row = 64;  // consecutive files that one thread removes
constexpr const char* was_gone = "it was not there any more";

ReceiptEntry failure_of(const fs::WalkItem& item, const Error& error) {
  auto entry = receipt_entry(item, Action::failed, "removing it: " + describe(error));
  entry.code = error.code;
  return entry;
}

/// The entry of an input whose name another node or job has claimed. carry_out() tries it again.
ReceiptEntry held_entry(const fs::WalkItem& item, const Error& held) {
  auto entry = receipt_entry(item, Action::failed, held.what);
  entry.code = held.code;
  return entry;
}

std::vector<std::size_t> held_in(const std::vector<ReceiptEntry>& entries) {
  std::vector<std::size_t> held;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].action == Action::failed && is_held({entries[i].code, {}})) {
      held.push_back(i);
    }
  }
  return held;
}

std::vector<std::string> claims_in(const std::vector<ReceiptEntry>& entries,
                                   const std::vector<std::size_t>& held) {
  std::vector<std::string> claims;
  for (const auto i : held) {
    claims.push_back(entries[i].reason);
  }
  return claims;
}

bool is_missing(const Error& error) {
  return error.code == ENOENT || error.code == ENOTDIR;
}

}  // namespace

Deletions::Deletions(const ExportContext& context)
    : config_(context.config),
      pfs_(context.pfs),
      publisher_(*context.options.publisher),
      tree_(context.tree),
      pool_(context.pool),
      progress_(context.progress),
      placed_(context.options.placed),
      partial_tag_(context.options.partial_tag),
      in_place_(config::has_results_in_place(context.config)),
      rules_{.on_conflict = config_.on_conflict, .existing = config_.existing} {}

std::vector<fs::WalkItem> Deletions::due(std::vector<fs::WalkItem> inputs) const {
  if (!in_place_) {
    std::erase_if(inputs, [](const fs::WalkItem& item) { return !item.pfs.saved; });
  }
  return inputs;
}

std::vector<ReceiptEntry> Deletions::refuse(const std::vector<fs::WalkItem>& inputs,
                                            const std::string& reason, int code) const {
  std::vector<ReceiptEntry> entries;
  for (const auto& item : inputs) {
    entries.push_back(receipt_entry(item, Action::not_saved,
                                    "the job removed it; not removed from results-dir: " + reason)),
        entries.back().code = code;
  }
  return entries;
}

std::vector<ReceiptEntry> Deletions::leave(const std::vector<fs::WalkItem>& inputs) const {
  std::vector<ReceiptEntry> entries;
  for (const auto& item : inputs) {
    entries.push_back(receipt_entry(
        item, Action::skipped,
        "the job renamed it, and its new name is temporary by the job file: it stays"));
  }
  return entries;
}

std::vector<ReceiptEntry> Deletions::carry_out(const std::vector<fs::WalkItem>& inputs,
                                               Patience& patience) {
  std::vector<ReceiptEntry> entries(inputs.size());
  const auto each = [&](std::size_t i, auto remove) {
    try {
      entries[i] = progress_.cancel
                       ? refuse({inputs[i]}, progress_.why_cancelled(), ECANCELED).front()
                       : (this->*remove)(inputs[i]);
    } catch (const std::exception& exception) {
      entries[i] = failure_of(inputs[i], {ENOMEM, exception.what()});
    }
  };
  pool_.run(inputs.size(), files_in_a_row, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (!S_ISDIR(inputs[i].attributes.st_mode)) {
        each(i, &Deletions::remove_file);
      }
    }
  });
  for (auto held = held_in(entries); !held.empty(); held = held_in(entries)) {
    const bool goes_on = patience.wait(claims_in(entries, held));
    for (const auto i : held) {
      if (goes_on) {
        each(i, &Deletions::remove_file);
      } else {
        entries[i] = fail_held(inputs[i], entries[i]);
      }
    }
  }
  // The content of a directory goes before the directory: the paths are sorted.
  for (std::size_t i = inputs.size(); i-- > 0;) {
    if (S_ISDIR(inputs[i].attributes.st_mode)) {
      each(i, &Deletions::remove_directory);
    }
  }
  make_durable(entries);
  return entries;
}

ReceiptEntry Deletions::fail_held(const fs::WalkItem& item, const ReceiptEntry& held) const {
  const Error error = given_up({held.code, held.reason});
  return progress_.cancel ? refuse({item}, error.what + "; " + progress_.why_cancelled()).front()
                          : failure_of(item, error);
}

ReceiptEntry Deletions::remove_file(const fs::WalkItem& item) {
  const auto directory = let_in_and_open(parent_of(item.path));
  if (!directory) {
    return is_missing(directory.error()) ? not_there(item) : failure_of(item, directory.error());
  }
  const auto now = pfs_.lstat(*directory, leaf_of(item.path));
  if (!now) {
    return is_missing(now.error()) ? not_there(item) : failure_of(item, now.error());
  }
  const Decision decision = decide_removal({.is_own = is_jobs_version(item, *directory, *now),
                                            .may_be_nodes = is_of_another_node(*now),
                                            .is_directory = S_ISDIR(now->st_mode)},
                                           rules_);
  if (decision.act != Act::write) {
    return leave_changed(item, decision);
  }
  const Status done = remove_version(item, *directory, *now);
  if (done || is_missing(done.error())) {
    return receipt_entry(
        item, Action::removed,
        decision.replaces ? "a version that changed on the PFS since it was staged in" : "");
  }
  if (is_held(done.error())) {
    return held_entry(item, done.error());
  }
  if (done.error().code == EEXIST) {
    return receipt_entry(item, Action::conflict, describe(done.error()));
  }
  return failure_of(item, done.error());
}

/// Opens the directory, with the owner's access if its mode lacks that.
Result<PfsHandle> Deletions::let_in_and_open(const std::string& path) {
  auto directory = tree_.directory(path);
  if (!directory && directory.error().code == EACCES && tree_.grant_owner_access(path)) {
    directory = tree_.directory(path);
  }
  return directory;
}

/// True if `now`, which has the item's name in `directory`, is the imported or exported version.
bool Deletions::is_jobs_version(const fs::WalkItem& item, PfsRef directory,
                                const struct stat& now) {
  const bool ours = is_ours(placed_, {.name = item.path, .own = item.path}, item, now);
  // An exported link may have another target than the imported one.
  if (S_ISLNK(item.attributes.st_mode) && S_ISLNK(now.st_mode) && !item.pfs.saved &&
      (placed_ == nullptr || !placed_->knows(item.path))) {
    const auto target = pfs_.readlink(directory, leaf_of(item.path));
    return target && *target == item.target;
  }
  return ours;
}

/// The entry of an input that the decision leaves on the PFS.
ReceiptEntry Deletions::leave_changed(const fs::WalkItem& item, const Decision& decision) {
  if (decision.act == Act::keep_both) {
    return receipt_entry(
        item, Action::skipped,
        "the job removed it, but it changed on the PFS since it was staged in: it stays");
  }
  if (decision.obstacle == Obstacle::of_node) {
    return receipt_entry(item, Action::conflict,
                         "the job removed it on this node, and another node of the job may have "
                         "exported it: it stays");
  }
  return receipt_entry(item, Action::conflict,
                       "the job removed it, but it changed on the PFS since it was staged in");
}

/// Removes `now` from the directory, unless the name belongs to another file by now, and records
/// that.
Status Deletions::remove_version(const fs::WalkItem& item, PfsRef directory,
                                 const struct stat& now) {
  const std::string name = leaf_of(item.path), claimant = partial_name(name, partial_tag_);
  // As for a result: another process may have changed the file since the check.
  if (placed_ != nullptr) {
    (void)placed_->coming({.name = item.path, .own = item.path}, nullptr, &now);
  }
  const auto remove = [&] {
    return publisher_.remove(pfs_,
                             {.at = directory, .name = name, .seen = now, .claimant = claimant});
  };
  auto done = remove();
  if (!done && done.error().code == EACCES && tree_.grant_owner_access(parent_of(item.path))) {
    done = remove();
  }
  if (done) {
    record_removed(item);
  }
  return done;
}

void Deletions::record_removed(const fs::WalkItem& item) {
  if (placed_ != nullptr) {
    (void)placed_->placed({.name = item.path, .own = item.path}, nullptr, false);
  }
}

ReceiptEntry Deletions::not_there(const fs::WalkItem& item) {
  record_removed(item);
  return receipt_entry(item, Action::removed, was_gone);
}

/// As for a rename (merge.hpp): a file that is newer than the job.
bool Deletions::is_of_another_node(const struct stat& there) const {
  return config_.nodes > 1 && to_ns(there.st_ctim) >= config_.merge_since;
}

ReceiptEntry Deletions::remove_directory(const fs::WalkItem& item) {
  const auto remove = [&] {
    const auto directory = tree_.directory(parent_of(item.path));
    return directory ? pfs_.rmdir(*directory, leaf_of(item.path))
                     : Status(std::unexpected(directory.error()));
  };
  auto done = remove();
  if (!done && done.error().code == EACCES && tree_.grant_owner_access(parent_of(item.path))) {
    done = remove();
  }
  if (done) {
    record_removed(item);
  }
  if (done) {
    return receipt_entry(item, Action::removed, {});
  }
  if (is_missing(done.error())) {
    return not_there(item);
  }
  if (done.error().code == ENOTEMPTY || done.error().code == EEXIST) {
    return receipt_entry(item, Action::skipped,
                         "the job removed the directory; on the PFS it is not empty and stays");
  }
  return failure_of(item, done.error());
}

/// An fsync of the remaining directories makes the removals durable.
void Deletions::make_durable(std::vector<ReceiptEntry>& entries) {
  const auto directories = directories_left(entries);
  const Status synced = tree_.sync(directories);
  if (placed_ != nullptr && !directories.empty()) {
    (void)placed_->sync();  // as for results
  }
  if (synced) {
    return;
  }
  for (auto& entry : entries) {
    if (entry.action != Action::removed) {
      continue;
    }
    entry.action = Action::failed;
    entry.reason = "it is removed, but may reappear after a crash: " + describe(synced.error());
  }
}

/// The directories that still exist and from which something was removed.
std::set<std::string> Deletions::directories_left(const std::vector<ReceiptEntry>& entries) {
  std::unordered_set<std::string> removed;
  for (const auto& entry : entries) {
    if (entry.action == Action::removed) {
      removed.insert(entry.path);
    }
  }
  std::set<std::string> directories;
  for (const auto& path : removed) {
    std::string parent = parent_of(path);
    while (!parent.empty() && (removed.contains(parent) || !tree_.directory(parent))) {
      parent = parent_of(parent);
    }
    directories.insert(parent);
  }
  return directories;
}

}  // namespace efs::stage
