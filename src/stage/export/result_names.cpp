// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/result_names.hpp"

#include "stage/plan/results_dir.hpp"

namespace efs::stage {

ResultNames::ResultNames(const ExportContext& context)
    : config_(context.config),
      buffer_(context.buffer),
      pfs_(context.pfs),
      publisher_(*context.options.publisher),
      tree_(context.tree),
      progress_(context.progress),
      failures_(context.failures),
      placed_(context.options.placed),
      in_place_(config::has_results_in_place(context.config)),
      rules_{.on_conflict = config_.on_conflict, .existing = config_.existing},
      inputs_(context.config, context.buffer, context.pfs),
      spelled_(context.pfs) {}

void ResultNames::reserve(const fs::WalkItem& item) {
  const MutexLock lock(mutex_);
  kept_names_.try_emplace(item.path, &item);
}

/// True if a file may have the name already. (A directory that this stage-out has made has no other
/// files.)
bool ResultNames::may_meet_another(const Outgoing& out) const {
  return may_conflict(out) || out.elder != nullptr || !tree_.is_new(parent_of(out.item->path));
}

/// True if the file that has the name may belong to another user and must stay. A new file of the
/// job replaces an existing file, as a program would, but not a file that replaced the job's own.
bool ResultNames::may_conflict(const Outgoing& out) const {
  return in_place_ && (out.item->pfs.origin || out.item->pfs.replaced || out.item->pfs.saved ||
                       (placed_ != nullptr && placed_->knows(out.item->path)));
}

bool ResultNames::is_own(const Outgoing& out, const struct stat& there) const {
  const std::string own = buffer_.own_path(out.item->path);
  return is_ours(placed_, {.name = out.item->path, .own = own}, *out.item, there);
}

Encounter ResultNames::encounter(const Outgoing& out, const PfsCheck& there) const {
  const bool others_work = config_.nodes > 1 || config_.merges;
  return {.version = there.version,
          .whose = there.whose,
          .exists = there.exists,
          .is_own = there.exists && is_own(out, there.seen),
          .is_known_name = may_conflict(out),
          .may_be_nodes = others_work && config_.merge_since != 0 &&
                          to_ns(there.seen.st_ctim) >= config_.merge_since};
}

Decision ResultNames::decide(const Outgoing& out, const PfsCheck& there) const {
  return decide_result(encounter(out, there), rules_);
}

/// True if a name without a record may be this store's.
bool ResultNames::is_unsure() const {
  return in_place_ && placed_ != nullptr && placed_->is_incomplete();
}

bool ResultNames::is_looked_at(const Outgoing& out) const {
  return may_protect(may_conflict(out) || is_unsure(), rules_);
}

Result<PfsCheck> ResultNames::check(const Outgoing& out, PfsRef directory, Scratch& scratch) {
  const Comparand there{.directory = directory,
                        .name = out.name,
                        .to_origin = in_place_,
                        .placed = in_place_ ? placed_ : nullptr};
  return check_version(*out.item, there, means(scratch));
}

VersionMeans ResultNames::means(Scratch& scratch) const {
  return {.buffer = buffer_,
          .pfs = pfs_,
          .publisher = publisher_,
          .scratch = scratch,
          .cancel = progress_.cancel};
}

/// True if the PFS resolves this name and the name of its elder to the same file. (False if both
/// are names of one file in the buffer.)
bool ResultNames::is_elders(const Outgoing& out, PfsRef directory) {
  if (out.elder == nullptr || out.elder->ino == out.item->ino) {
    return false;
  }
  const auto beside = tree_.directory(parent_of(out.elder->path));
  const auto elder = beside ? pfs_.lstat(*beside, leaf_of(out.elder->path))
                            : std::unexpected(beside.error()),
             own = pfs_.lstat(directory, out.name);
  return elder && own && identity_of(*elder) == identity_of(*own);
}

/// True if the result was exported under this name and the name still leads to that copy; the PFS
/// has chosen the spelling.
bool ResultNames::is_own_copy(const Outgoing& out, PfsRef directory) {
  const auto there = out.item->pfs.saved ? pfs_.lstat(directory, out.name) : fail(ENOENT);
  return there && there->st_ino == out.item->pfs.saved->inode;
}

bool ResultNames::is_spelled_so(Outgoing& out, PfsRef directory) {
  const bool is_anothers = spelled_.is_anothers(parent_of(out.item->path), directory, out.name) &&
                           !is_own_copy(out, directory);
  if (!is_anothers && !is_elders(out, directory)) {
    return true;
  }
  out.settle(Action::conflict,
             "results-dir does not distinguish its name from another one there (upper and lower "
             "case?): it is kept in the buffer only; give it another name, or export it elsewhere "
             "with efs salvage --to");
  return false;
}

bool ResultNames::is_over_input(Outgoing& out, PfsRef directory) {
  const auto there = pfs_.lstat(directory, out.name);
  if (!there && there.error().code == ENOENT) {
    return false;
  }
  // The comparison below reads all names of the buffer. No input is a copy that the job has made.
  if (there && out.item->pfs.saved && is_copy(*there, *out.item->pfs.saved)) {
    return false;
  }
  const auto input = there ? inputs_.is_input(*there) : std::unexpected(there.error());
  if (!input) {
    failures_.fail_result(out, {input.error().code, "comparing what is there with the inputs: " +
                                                        describe(input.error())});
    return true;
  }
  if (*input) {
    out.settle(Action::conflict,
               "results-dir has an input of this job under its name; the job's version is kept in "
               "the buffer only");
  }
  return *input;
}

void ResultNames::found_there(Outgoing& out, std::optional<FileSum> checksum) {
  out.entry.checksum = checksum;
  out.state = outgoing::Named{.there_already = true};
  progress_.bytes_done += out.data;
}

bool ResultNames::resolve(Outgoing& out, const Decision& decision, PfsRef directory,
                          Scratch& scratch) {
  const ObstacleTexts& texts = texts_about(decision.obstacle);
  if (decision.act == Act::write) {
    out.replaces = true;
    out.entry.reason = texts.replaced;
    return true;
  }
  if (decision.act == Act::keep_both) {
    out.kept_beside = decision.obstacle;
    const auto may_write = keep_beside(out, texts.both, directory, scratch);
    if (may_write) {
      return *may_write;
    }
  }
  out.settle(Action::conflict, std::string(texts.left) + " is kept in the buffer only");
  return false;
}

/// Chooses a name for the job's version beside the other one. Returns as resolve(); nullopt if all
/// names are taken.
std::optional<bool> ResultNames::keep_beside(Outgoing& out, std::string_view why, PfsRef directory,
                                             Scratch& scratch) {
  for (unsigned n = 1; n < 1000; ++n) {
    std::string name = kept_name(leaf_of(out.item->path), config_.name, n);
    const auto check = check_version(
        *out.item, {.directory = directory, .name = name, .to_origin = false}, means(scratch));
    if (!check) {
      failures_.fail_result(out, check.error());
      return false;
    }
    // kept by another run, or by another result
    if (check->version == PfsVersion::other || !take_kept_name(out, name)) {
      continue;
    }
    out.name = std::move(name);
    out.entry.placed_as = out.name;
    out.entry.reason = std::string(why) + out.name;
    if (check->version == PfsVersion::same_content) {
      found_there(out, check->checksum);
      return false;
    }
    return true;
  }
  return std::nullopt;
}

/// False if another result of this stage-out has the name: names that differ only beyond the
/// longest name are equal after cutting.
bool ResultNames::take_kept_name(const Outgoing& out, const std::string& name) {
  const std::string parent = parent_of(out.item->path),
                    path = parent.empty() ? name : parent + "/" + name;
  if (buffer_.has(path)) {
    return false;
  }
  const MutexLock lock(mutex_);
  return kept_names_.try_emplace(path, out.item).first->second == out.item;
}

}  // namespace efs::stage
