// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/result_writer.hpp"

#include <chrono>

#include "fs/acl.hpp"
#include "stage/pfs/partial_name.hpp"

namespace efs::stage {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

ResultWriter::ResultWriter(const ExportContext& context, ResultNames& names)
    : config_(context.config),
      buffer_(context.buffer),
      pfs_(context.pfs),
      tree_(context.tree),
      progress_(context.progress),
      failures_(context.failures),
      names_(names),
      records_(context),
      in_place_(config::has_results_in_place(context.config)),
      scratches_(context.options.transfer_size, context.options.processors()) {}

void ResultWriter::write(std::span<Outgoing> task) {
  const ScratchPool::Loan scratch(scratches_);
  DirectoryCursor directories = tree_.cursor();
  for (auto& out : task) {
    if (out.is<outgoing::Settled>() || failures_.leave_untried(out)) {
      continue;
    }
    const auto started = Clock::now();
    write_one(out, directories, *scratch);
    out.entry.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  }
}

Result<PartialFile> ResultWriter::write_in(const Outgoing& out, PfsRef directory,
                                           Scratch& scratch) {
  PartialJob job = out.job(directory);
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
    failures_.fail_result(out, directory.error());
    return;
  }
  if (names_.may_meet_another(out) && !may_write(out, *directory, scratch)) {
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
    // a hidden directory stays hidden until the file is removed
    failures_.fail_result(out, written.error()).partial_left = out.straight;
    return;
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
  out.state = outgoing::Written{};
}

/// The mode bits that the directory's default ACL permits; nullopt without a default ACL. In place
/// the job's files already have the right ACL. (Elsewhere results-dir decides which users may read
/// its new files.)
std::optional<mode_t> ResultWriter::handed_down_acl(const std::string& path, PfsRef directory) {
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

/// False if the result is settled, or `named` by an earlier stage-out.
bool ResultWriter::may_write(Outgoing& out, PfsRef directory, Scratch& scratch) {
  out.replaces = false;
  const auto there = names_.check(out, directory, scratch);
  if (!there) {
    failures_.fail_result(out, there.error());
    return false;
  }
  if (there->exists && !names_.is_spelled_so(out, directory)) {
    return false;
  }
  if (there->version == PfsVersion::same_content) {
    names_.found_there(out, there->checksum);
    records_.record_named(out, directory, there->whose == WhoseCopy::theirs);
    return false;
  }
  const Decision decision = names_.decide(out, *there);
  if (decision.obstacle != Obstacle::none) {
    return names_.resolve(out, decision, directory, scratch);
  }
  if (!in_place_ && there->version != PfsVersion::origin_or_none &&
      names_.is_over_input(out, directory)) {
    return false;
  }
  out.replaces = decision.replaces;
  return true;
}

void ResultWriter::verify(std::span<Outgoing> task) {
  const ScratchPool::Loan scratch(scratches_);
  DirectoryCursor directories = tree_.cursor();
  for (auto& out : task) {
    if (out.is<outgoing::Written>() && out.file.checksum) {
      verify_one(out, directories, *scratch);
    }
  }
}

void ResultWriter::verify_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch) {
  auto directory = directories.at(parent_of(out.item->path));
  auto read = directory ? read_back(out.job(*directory), out.file, pfs_, scratch, progress_.cancel)
                        : Status(std::unexpected(directory.error()));
  if (read) {
    return;
  }
  failures_.fail_result(out, read.error()).partial_left = true;
}

void ResultWriter::remove_partials(std::span<Outgoing> batch) {
  DirectoryCursor directories = tree_.cursor();
  for (auto& out : batch) {
    if (out.partial_left() && remove_at_once(out, directories)) {
      out.set_partial_left(false);
    }
  }
}

void ResultWriter::remove_written(Outgoing& out) {
  DirectoryCursor directories = tree_.cursor();
  (void)remove_at_once(out, directories);  // a failure is in the entry
}

/// False, and a reason in the entry, if the file stays.
bool ResultWriter::remove_at_once(Outgoing& out, DirectoryCursor& directories) {
  const auto directory = directories.at(parent_of(out.item->path));
  const Status gone =
      directory ? pfs_.unlink(*directory, out.way_name()) : std::unexpected(directory.error());
  if (gone || gone.error().code == ENOENT) {
    return true;
  }
  out.entry.reason += "; " + left_behind(out.way_name(), gone.error());
  return false;
}

}  // namespace efs::stage
