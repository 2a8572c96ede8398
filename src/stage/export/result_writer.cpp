// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/result_writer.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include "fs/acl.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/plan/results_dir.hpp"

namespace efs::stage {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int most_tries = 1000;  // of getting a name for which other processes compete

PartialJob job_of(const Outgoing& out, int directory) {
  return {.item = *out.item,
          .directory = directory,
          .partial = out.way_name(),
          .is_hidden = out.straight,
          .fsync = out.fsync,
          .name = out.name,
          .is_new = !out.entry.placed_as.empty()};
}

bool is_full(const Error& error) {
  return error.code == ENOSPC || error.code == EDQUOT;
}

/// Lets the name be given only if it still belongs to `there`; null: only if it is free.
void guard_name(PartialJob& job, const struct stat* there) {
  job.is_new = there == nullptr;
  job.over = there;
}

/// True if the PFS should have a copy of the result.
bool is_brought_out(const Outgoing& out) {
  return out.state == Outgoing::State::settled &&
         (out.entry.action == Action::staged_out || out.entry.action == Action::kept);
}

/// True if `now`, which has the name of the result on the PFS, is still its copy.
bool is_still_copy(const Outgoing& out, const struct stat& now) {
  if (out.file.checksum && now.st_ino != out.file.inode) {
    return false;
  }
  return !out.brought_before || is_untouched_copy(now, *out.item);
}

/// True if the PFS cannot link, or cannot link this file. That is no failure: the result is then a
/// separate file.
bool cannot_link(const Error& error) {
  constexpr std::array codes{EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV};
  return std::ranges::find(codes, error.code) != codes.end();
}

}  // namespace

ResultWriter::ResultWriter(const ExportContext& context)
    : config_(context.config),
      buffer_(context.buffer),
      pfs_(context.pfs),
      tree_(context.tree),
      progress_(context.progress),
      placed_(context.options.placed),
      in_place_(config::has_results_in_place(context.config)),
      rules_{.on_conflict = config_.on_conflict, .existing = config_.existing},
      inputs_(context.config, context.buffer, context.pfs),
      spelled_(context.pfs),
      scratches_(context.options.transfer_size, context.options.processors()) {}

DirectoryCursor ResultWriter::cursor() const {
  return DirectoryCursor([this](const std::string& path) { return tree_.directory(path); });
}

void ResultWriter::record_full(const Error& error) {
  if (is_full(error)) {
    full_ = true;
  }
}

void ResultWriter::fail_result(Outgoing& out, const Error& error) {
  record_full(error);
  out.no_room = is_full(error);
  out.entry.code = error.code;
  if (error.code == ECANCELED) {
    return out.settle(Action::not_saved, progress_.why_cancelled());
  }
  out.settle(Action::failed, describe(error));
}

void ResultWriter::fail_held(Outgoing& out) {
  const Error error = given_up({EALREADY, out.held});
  out.entry.code = error.code;
  out.partial_left = out.state == Outgoing::State::written;
  if (progress_.cancel) {
    return out.settle(Action::not_saved, error.what + "; " + progress_.why_cancelled());
  }
  out.settle(Action::failed, error.what);
}

void ResultWriter::fail_name(Outgoing& out, const Error& error) {
  if (error.code != EEXIST) {
    return fail_result(out, error);
  }
  out.entry.code = error.code;
  out.settle(Action::conflict, describe(error));
}

void ResultWriter::write(std::span<Outgoing> task) {
  const ScratchPool::Loan scratch(scratches_);
  DirectoryCursor directories = cursor();
  for (auto& out : task) {
    if (out.state == Outgoing::State::settled) {
      continue;
    }
    if (full_) {
      out.settle(Action::not_saved, "not tried: no space left in results-dir");
      out.no_room = true;
    } else if (progress_.cancel) {
      out.settle(Action::not_saved, std::string("not tried: ") + progress_.why_cancelled());
      out.entry.code = ECANCELED;
    } else {
      const auto started = Clock::now();
      write_one(out, directories, *scratch);
      out.entry.seconds = std::chrono::duration<double>(Clock::now() - started).count();
    }
  }
}

Result<PartialFile> ResultWriter::write_in(const Outgoing& out, int directory, Scratch& scratch) {
  PartialJob job = job_of(out, directory);
  job.synced = tree_.device();
  const auto acl = handed_down_acl(parent_of(out.item->path), directory);
  job.inherits_acl = in_place_ && acl;
  if (!in_place_ && acl && !config_.results_mode) {
    job.acl_allows = *acl;
  }
  return write_partial(job, buffer_, pfs_, scratch, progress_);
}

void ResultWriter::write_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch) {
  auto directory = directories.at(parent_of(out.item->path));
  if (!directory) {
    return fail_result(out, directory.error());
  }
  if (may_meet_another(out) && !may_write(out, *directory, scratch)) {
    return;
  }
  out.straight = out.elder == nullptr && tree_.is_hidden(parent_of(out.item->path));
  auto written = write_in(out, *directory, scratch);
  // another process has made the file all the same
  if (!written && out.straight && written.error().code == EEXIST) {
    out.straight = false;
    written = write_in(out, *directory, scratch);
  }
  if (!written) {
    out.partial_left = out.straight;  // the directory stays hidden until the file is removed
    return fail_result(out, written.error());
  }
  take_written(out, *written);
}

void ResultWriter::take_written(Outgoing& out, const PartialFile& written) {
  out.file = written;
  out.entry.checksum = written.checksum;
  if (written.checksum) {
    out.entry.bytes = written.size;
  }
  if (!written.lost.empty()) {
    out.entry.reason += (out.entry.reason.empty() ? "" : "; ") + ("without " + written.lost);
  }
  out.state = Outgoing::State::written;
}

/// True if a file may have the name already. (A directory that this stage-out has made has no other
/// files.)
bool ResultWriter::may_meet_another(const Outgoing& out) const {
  return may_conflict(out) || out.elder != nullptr || !tree_.is_new(parent_of(out.item->path));
}

/// The mode bits that the directory's default ACL permits; nullopt without a default ACL. In place
/// the job's files already have the right ACL. (Elsewhere results-dir decides which users may read
/// its new files.)
std::optional<mode_t> ResultWriter::handed_down_acl(const std::string& path, int directory) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = acl_directories_.find(path); known != acl_directories_.end()) {
      return known->second;
    }
  }
  const auto xattrs = pfs_.xattrs(directory);
  std::optional<mode_t> allows;
  if (xattrs && xattrs->contains(fs::default_acl_name)) {
    const auto acl = fs::Acl::parse(xattrs->at(fs::default_acl_name));
    allows = acl ? acl->mode_of(0) : 0777U;
  }
  const MutexLock lock(mutex_);
  return acl_directories_[path] = allows;
}

/// True if the file that has the name may belong to another user and must stay. A new file of the
/// job replaces an existing file, as a program would, but not a file that replaced the job's own.
bool ResultWriter::may_conflict(const Outgoing& out) const {
  return in_place_ && (out.item->origin || out.item->replaced || out.item->saved ||
                       (placed_ != nullptr && placed_->knows(out.item->path)));
}

/// True if `there`, which has the name, is the version that the job may replace.
bool ResultWriter::is_own(const Outgoing& out, const struct stat& there) const {
  const std::string own = buffer_.own_path(out.item->path);
  return is_ours(placed_, {.name = out.item->path, .own = own}, *out.item, there);
}

Encounter ResultWriter::encounter(const Outgoing& out, const PfsCheck& there) const {
  const bool others_work = config_.nodes > 1 || config_.merges;
  return {.version = there.version,
          .whose = there.whose,
          .exists = there.exists,
          .is_own = there.exists && is_own(out, there.seen),
          .is_known_name = may_conflict(out),
          .may_be_nodes = others_work && config_.merge_since != 0 &&
                          to_ns(there.seen.st_ctim) >= config_.merge_since};
}

Decision ResultWriter::decide(const Outgoing& out, const PfsCheck& there) const {
  return decide_result(encounter(out, there), rules_);
}

/// True if a name without a record may be this store's.
bool ResultWriter::is_unsure() const {
  return in_place_ && placed_ != nullptr && placed_->is_incomplete();
}

Result<PfsCheck> ResultWriter::check(const Outgoing& out, int directory, Scratch& scratch) {
  const Comparand there{.directory = directory,
                        .name = out.name,
                        .to_origin = in_place_,
                        .placed = in_place_ ? placed_ : nullptr};
  return check_version(*out.item, there, means(scratch));
}

VersionMeans ResultWriter::means(Scratch& scratch) const {
  return {.buffer = buffer_, .pfs = pfs_, .scratch = scratch, .cancel = progress_.cancel};
}

/// False if the result is settled, or `named` by an earlier stage-out.
bool ResultWriter::may_write(Outgoing& out, int directory, Scratch& scratch) {
  out.replaces = false;
  const auto there = check(out, directory, scratch);
  if (!there) {
    fail_result(out, there.error());
    return false;
  }
  if (there->exists && !is_spelled_so(out, directory)) {
    return false;
  }
  if (there->version == PfsVersion::same_content) {
    found_there(out, there->checksum);
    record_named(out, directory, there->whose == WhoseCopy::theirs);
    return false;
  }
  const Decision decision = decide(out, *there);
  if (decision.obstacle != Obstacle::none) {
    return resolve(out, decision, directory, scratch);
  }
  if (!in_place_ && there->version != PfsVersion::origin_or_none && is_over_input(out, directory)) {
    return false;
  }
  out.replaces = decision.replaces;
  return true;
}

/// True if the PFS resolves this name and the name of its elder to the same file. (False if both
/// are names of one file in the buffer.)
bool ResultWriter::is_elders(const Outgoing& out, int directory) {
  if (out.elder == nullptr || out.elder->ino == out.item->ino) {
    return false;
  }
  const auto beside = tree_.directory(parent_of(out.elder->path));
  const auto elder = beside ? pfs_.lstat(beside->get(), leaf_of(out.elder->path))
                            : std::unexpected(beside.error()),
             own = pfs_.lstat(directory, out.name);
  return elder && own && identity_of(*elder) == identity_of(*own);
}

/// True if the result was exported under this name and the name still leads to that copy; the PFS
/// has chosen the spelling.
bool ResultWriter::is_own_copy(const Outgoing& out, int directory) {
  const auto there = out.item->saved ? pfs_.lstat(directory, out.name) : fail(ENOENT);
  return there && there->st_ino == out.item->saved->inode;
}

/// Settles the result if its name leads to a file with another spelling. Otherwise the result or
/// that other file, perhaps also a result, would be lost.
bool ResultWriter::is_spelled_so(Outgoing& out, int directory) {
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

/// Settles the result if its name leads to an input of the job. No name in results-dir should, but
/// one may.
bool ResultWriter::is_over_input(Outgoing& out, int directory) {
  const auto there = pfs_.lstat(directory, out.name);
  if (!there && there.error().code == ENOENT) {
    return false;
  }
  const auto input = there ? inputs_.is_input(*there) : std::unexpected(there.error());
  if (!input) {
    fail_result(out, {input.error().code,
                      "comparing what is there with the inputs: " + describe(input.error())});
    return true;
  }
  if (*input) {
    out.settle(Action::conflict,
               "results-dir has an input of this job under its name; the job's version is kept in "
               "the buffer only");
  }
  return *input;
}

/// The name may not be durable yet: as after a rename, it needs the sync of its directory.
void ResultWriter::found_there(Outgoing& out, std::optional<FileSum> checksum) {
  out.entry.checksum = checksum;
  out.there_already = true;
  out.state = Outgoing::State::named;
  progress_.bytes_done += out.data;
}

/// The name has an obstacle. True if the result may be written, under out.name.
bool ResultWriter::resolve(Outgoing& out, const Decision& decision, int directory,
                           Scratch& scratch) {
  const ObstacleTexts& texts = texts_about(decision.obstacle);
  if (decision.act == Act::write) {
    out.replaces = true;
    out.entry.reason = texts.replaced;
    return true;
  }
  if (decision.act == Act::keep_both) {
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
std::optional<bool> ResultWriter::keep_beside(Outgoing& out, std::string_view why, int directory,
                                              Scratch& scratch) {
  for (unsigned n = 1; n < 1000; ++n) {
    std::string name = kept_name(leaf_of(out.item->path), config_.name, n);
    const auto check = check_version(
        *out.item, {.directory = directory, .name = name, .to_origin = false}, means(scratch));
    if (!check) {
      fail_result(out, check.error());
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
bool ResultWriter::take_kept_name(const Outgoing& out, const std::string& name) {
  const std::string parent = parent_of(out.item->path),
                    path = parent.empty() ? name : parent + "/" + name;
  if (buffer_.has(path)) {
    return false;
  }
  const MutexLock lock(mutex_);
  return kept_names_.try_emplace(path, out.item).first->second == out.item;
}

void ResultWriter::reserve(const fs::WalkItem& item) {
  const MutexLock lock(mutex_);
  kept_names_.try_emplace(item.path, &item);
}

void ResultWriter::verify(std::span<Outgoing> task) {
  const ScratchPool::Loan scratch(scratches_);
  DirectoryCursor directories = cursor();
  for (auto& out : task) {
    if (out.state == Outgoing::State::written && out.file.checksum) {
      verify_one(out, directories, *scratch);
    }
  }
}

void ResultWriter::verify_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch) {
  auto directory = directories.at(parent_of(out.item->path));
  auto read = directory
                  ? read_back(job_of(out, *directory), out.file, pfs_, scratch, progress_.cancel)
                  : Status(std::unexpected(directory.error()));
  if (read) {
    return;
  }
  out.partial_left = true;
  fail_result(out, read.error());
}

void ResultWriter::publish(std::span<Outgoing> task) {
  const ScratchPool::Loan scratch(scratches_);
  DirectoryCursor directories = cursor();
  for (auto& out : task) {
    if (out.state == Outgoing::State::written) {
      publish_one(out, directories, *scratch);
    }
  }
}

void ResultWriter::publish_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch) {
  auto directory = directories.at(parent_of(out.item->path));
  if (!directory) {
    out.partial_left = true;
    return fail_result(out, directory.error());
  }
  // the file has its name, and programs will see this version
  if (out.straight) {
    return record_named(out, *directory, false);
  }
  out.held.clear();
  if (!take_name(out, *directory, scratch)) {
    return;
  }
  out.state = Outgoing::State::named;
  out.entry.replaced = out.replaces;
  record_named(out, *directory, false);
}

/// Gives the partial its name. False if the result is settled, `named` by an earlier stage-out, or
/// held.
bool ResultWriter::take_name(Outgoing& out, int directory, Scratch& scratch) {
  for (int tries = 1;; ++tries) {
    PfsCheck there;
    const auto job = look_again(out, directory, scratch, there);
    out.partial_left = !job;
    if (!job) {
      return false;
    }
    const auto published =
        publish_partial(*job, out.file, pfs_, [&](const struct stat& partial, bool is_shared) {
          record_naming(out, *job, partial, is_shared);
        });
    if (published) {
      return true;
    }
    if (is_held(published.error())) {
      return out.held = published.error().what, false;
    }
    if (!is_name_taken(*job, published.error())) {
      fail_name(out, published.error());
      return false;
    }
    out.partial_left = true;
    if (tries == most_tries) {
      fail_name(
          out,
          {EEXIST,
           "other processes keep replacing the file of its name: it is kept in the buffer only"});
      return false;
    }
    // Another run has since used that name: this version gets the next one.
    if (!out.entry.placed_as.empty() &&
        !resolve(out, decide(out, {.version = PfsVersion::other}), directory, scratch)) {
      return false;
    }
  }
}

/// True if the file that has the name may belong to another user and the job file protects it.
bool ResultWriter::is_looked_at(const Outgoing& out) const {
  return may_protect(may_conflict(out) || is_unsure(), rules_);
}

/// True if only the checked file may be replaced, because two jobs may export the same name. (With
/// several nodes, the PFS's rename handles that.)
bool ResultWriter::is_guarded(const Outgoing& out) const {
  return is_looked_at(out) && config_.nodes <= 1 && !config_.merges;
}

/// Checks the file that has the name once more, as late as possible, because writing may have taken
/// minutes. If that file is an input or an earlier result of the job, only it may be replaced.
/// Returns nullopt if the result is settled. The returned job points into `there`.
std::optional<PartialJob> ResultWriter::look_again(Outgoing& out, int directory, Scratch& scratch,
                                                   PfsCheck& there) {
  if (!is_looked_at(out) || !out.entry.placed_as.empty()) {
    return job_of(out, directory);
  }
  const auto checked = check(out, directory, scratch);
  if (!checked) {
    fail_result(out, checked.error());
    return std::nullopt;
  }
  there = *checked;
  const Decision decision = decide(out, there);
  if (decision.obstacle != Obstacle::none && !resolve(out, decision, directory, scratch)) {
    return std::nullopt;
  }
  out.replaces = decision.replaces && out.entry.placed_as.empty();
  PartialJob job = job_of(out, directory);
  if (out.entry.placed_as.empty() && is_guarded(out)) {
    guard_name(job, there.exists ? &there.seen : nullptr);
  }
  return job;
}

/// A program may change the file at any time, and this process may die. Only this record then shows
/// that no other process has changed the copy on the PFS.
void ResultWriter::record_naming(const Outgoing& out, const PartialJob& job,
                                 const struct stat& copy, bool is_shared) {
  if (!out.entry.placed_as.empty()) {
    return;
  }
  (void)buffer_.named(*out.item, [&] { return coming_version(copy, is_shared); });
  if (placed_ == nullptr) {
    return;
  }
  const auto before =
      job.over != nullptr ? Result<struct stat>(*job.over) : pfs_.lstat(job.directory, out.name);
  (void)placed_->coming({.name = out.item->path, .own = buffer_.own_path(out.item->path)}, &copy,
                        before ? &*before : nullptr);
}

/// The file in results-dir under this name, if it is the exported copy.
Result<struct stat> ResultWriter::named_copy(const Outgoing& out, int directory) {
  auto now = pfs_.lstat(directory, out.name);
  const bool ours =
      !now || out.file.inode == 0 ||
      (now->st_ino == out.file.inode && static_cast<std::uint64_t>(now->st_size) == out.file.size);
  return ours ? now : fail(ESTALE, "another process has replaced or changed it");
}

/// `is_theirs`: another user's file has the same content. If the job changes the result later, that
/// file must not be replaced.
void ResultWriter::record_named(Outgoing& out, int directory, bool is_theirs) {
  if (!out.entry.placed_as.empty()) {
    return;
  }
  std::optional<Result<struct stat>> copy;
  Status noted = buffer_.named(*out.item, [&]() -> Result<fs::Origin> {
    copy = named_copy(out, directory);
    if (!*copy) {
      return std::unexpected(copy->error());
    }
    return copy_version(pfs_, directory, out.name, **copy);
  });
  if (placed_ != nullptr && !is_theirs) {
    if (!copy) {
      copy = named_copy(out, directory);
    }
    const Status kept =
        *copy ? record_placed(out, directory, **copy) : std::unexpected(copy->error());
    if (noted) {
      noted = kept;
    }
  }
  if (!noted) {
    out.entry.reason += (out.entry.reason.empty() ? "" : "; ") +
                        std::string("when it changes again, this version may be a conflict: ") +
                        describe(noted.error());
  }
}

Status ResultWriter::record_placed(const Outgoing& out, int directory, const struct stat& copy) {
  return placed_->placed({.name = out.item->path, .own = buffer_.own_path(out.item->path)}, &copy,
                         pfs_.is_shared(directory, out.name, copy));
}

/// The copy has got another name. That changes its ctime, and so does the later removal of that
/// name.
void ResultWriter::record_linked(const Outgoing& first, int directory) {
  const auto now = placed_ != nullptr && first.entry.placed_as.empty()
                       ? pfs_.lstat(directory, first.name)
                       : fail(ENOENT);
  const std::string own = buffer_.own_path(first.item->path);
  if (now &&
      placed_->look({.name = first.item->path, .own = own}, *now, false) == WhoseCopy::ours) {
    (void)record_placed(first, directory, *now);
  }
}

bool ResultWriter::link(Outgoing& out, const Outgoing& first) {
  if (out.state == Outgoing::State::settled || first.state == Outgoing::State::written) {
    return true;
  }
  if (!is_brought_out(first) || progress_.cancel) {
    return false;
  }
  out.held.clear();
  const auto from = tree_.directory(parent_of(first.item->path));
  const auto to = tree_.directory(parent_of(out.item->path));
  if (!from || !to) {
    fail_result(out, from ? to.error() : from.error());
    return true;
  }
  const auto now = pfs_.lstat(from->get(), first.name);
  if (!now || !is_still_copy(first, *now)) {
    return false;
  }
  return link_copy(out, {.first = first, .directory = from->get(), .now = *now}, to->get());
}

/// Gives the copy the name of `out` in `directory` too. Returns as link().
bool ResultWriter::link_copy(Outgoing& out, const LinkedCopy& copy, int directory) {
  const auto present = pfs_.lstat(directory, out.name);
  if (!present) {
    return make_link(out, copy, directory, nullptr);
  }
  if (!is_spelled_so(out, directory)) {
    return true;
  }
  if (present->st_dev == copy.now.st_dev && present->st_ino == copy.now.st_ino) {
    out.entry.replaced = false;
    out.there_already = true;
    take_link(out, copy, directory);
    return true;
  }
  // Another version than the imported one: write the result as any other; that code applies the
  // policy.
  if (is_looked_at(out) && !is_own(out, *present)) {
    return false;
  }
  if (!in_place_ && is_over_input(out, directory)) {
    return true;
  }
  return make_link(out, copy, directory, &*present);
}

/// `present`: the file that has the name; null: none has. Returns as link().
bool ResultWriter::make_link(Outgoing& out, const LinkedCopy& copy, int directory,
                             const struct stat* present) {
  PartialJob job = job_of(out, directory);
  if (is_guarded(out)) {
    guard_name(job, present);
  }
  const bool first_is_shared = pfs_.is_shared(copy.directory, copy.first.name, copy.now);
  const auto about_to = [&](bool is_shared) {
    record_naming(out, job, copy.now, is_shared || first_is_shared);
  };
  const auto done = link_partial(copy.directory, copy.first.name, job, pfs_, about_to);
  if (!done && is_held(done.error())) {
    return out.held = done.error().what, true;
  }
  if (!done && cannot_link(done.error())) {
    return false;
  }
  if (!done) {
    fail_name(out, done.error());
    return true;
  }
  out.entry.replaced = present != nullptr && !is_own(out, *present);
  out.there_already = false;
  take_link(out, copy, directory);
  return true;
}

/// The name of `out` leads to the copy now.
void ResultWriter::take_link(Outgoing& out, const LinkedCopy& copy, int directory) {
  out.file = {.inode = copy.now.st_ino,
              .size = static_cast<std::uint64_t>(copy.now.st_size),
              .checksum = std::nullopt};
  out.state = Outgoing::State::named;
  out.entry.checksum = copy.first.entry.checksum;
  out.entry.bytes = 0;
  out.entry.reason = "another name of " + copy.first.item->path;
  record_named(out, directory, false);
  record_linked(copy.first, copy.directory);
}

void ResultWriter::remove_partials(std::span<Outgoing> batch) {
  DirectoryCursor directories = cursor();
  for (auto& out : batch) {
    if (!out.partial_left) {
      continue;
    }
    const auto directory = directories.at(parent_of(out.item->path));
    const Status gone =
        directory ? pfs_.unlink(*directory, out.way_name()) : std::unexpected(directory.error());
    if (gone || gone.error().code == ENOENT) {
      out.partial_left = false;
    } else {
      out.entry.reason += "; " + left_behind(out.way_name(), gone.error());
    }
  }
}

}  // namespace efs::stage
