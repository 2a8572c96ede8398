// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/part_writer.hpp"

#include <fcntl.h>

#include <algorithm>
#include <new>
#include <utility>

#include "fs/acl.hpp"
#include "stage/export/conflict.hpp"
#include "stage/export/selection.hpp"
#include "stage/pfs/attributes.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/pfs/patience.hpp"
#include "stage/resume/resume.hpp"
#include "stage/versions/copy_version.hpp"
#include "stage/versions/placed_names.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {
namespace {

constexpr const char* changed_meanwhile =
    "it changed in results-dir while the part was written; the job's version is kept "
    "in the buffer only";

}  // namespace

std::unexpected<Error> PartWriter::conflict(ReceiptEntry& entry, std::string reason) {
  entry.action = Action::conflict;
  return fail(ESTALE, std::move(reason));
}

/// True for a new file of the job, which replaces an existing file.
bool PartWriter::is_unknown_name(const fs::WalkItem& item) const {
  const bool is_known = options_.placed != nullptr &&
                        (options_.placed->knows(item.path) || options_.placed->is_incomplete());
  return !item.pfs.origin && !item.pfs.replaced && !is_known;
}

/// As ResultWriter for a whole file: another user's version may be changed only if the job file
/// permits it. A part cannot be kept beside that version.
Status PartWriter::may_lay_over(const fs::WalkItem& item, const OldVersion& old,
                                ReceiptEntry& entry) {
  const PlacedName name{.name = item.path, .own = item.path};
  const Decision decision =
      decide_result({.version = old.ours ? PfsVersion::origin_or_none : PfsVersion::other,
                     .exists = true,
                     .is_own = is_ours(options_.placed, name, item, old.attributes),
                     .is_known_name = in_place_ && !is_unknown_name(item)},
                    {.on_conflict = config_.on_conflict, .existing = config_.existing});
  if (decision.obstacle == Obstacle::none) {
    return in_place_ ? Status() : is_no_input(old, entry);
  }
  if (decision.act == Act::write) {
    entry.reason = "; laid over a version that changed on the PFS since it was staged in";
    return {};
  }
  if (decision.obstacle == Obstacle::existed) {
    return conflict(entry,
                    "results-dir has another file of this name, and the job file does not let "
                    "results replace it; the job's version is kept in the buffer only");
  }
  return conflict(entry,
                  std::string("it changed on the PFS since it was staged in; the job's "
                              "version is kept in the buffer only") +
                      (decision.act == Act::keep_both ? "; unload all of it to have both" : ""));
}

Status PartWriter::is_no_input(const OldVersion& old, ReceiptEntry& entry) {
  const auto input = inputs_.is_input(old.attributes);
  if (!input) {
    return std::unexpected(input.error());
  }
  if (*input) {
    return conflict(entry,
                    "results-dir has an input of this job under its name; the job's version is "
                    "kept in the buffer only");
  }
  return {};
}

/// Ignores the version of another file that had the name before.
bool PartWriter::is_its_own(const struct stat& there, fs::WalkItem item) {
  item.pfs.replaced = nullptr;
  return is_origin(there, item);
}

/// Checks as late as possible, because writing the part may have taken minutes.
Status PartWriter::is_still(const fs::WalkItem& item, const OldVersion& old, ReceiptEntry& entry) {
  const struct stat& before = old.attributes;
  const auto now = pfs_.lstat(old.directory, leaf_of(item.path));
  if (!now && now.error().code != ENOENT) {
    return std::unexpected(now.error());
  }
  const bool same = now && now->st_dev == before.st_dev && now->st_ino == before.st_ino &&
                    now->st_size == before.st_size &&
                    to_ns(now->st_mtim) == to_ns(before.st_mtim) &&
                    to_ns(now->st_ctim) == to_ns(before.st_ctim);
  if (same) {
    return {};
  }
  return conflict(entry, changed_meanwhile);
}

/// Cuts `asked` to the file. The buffer must have all of it.
Result<Part> PartWriter::present_part(const fs::WalkItem& item, Part asked) {
  const auto part = clipped(asked, static_cast<std::uint64_t>(item.attributes.st_size));
  if (!part) {
    return part;
  }
  if (!item.pfs.parts.empty() &&
      united(parts_of(item.pfs.parts), *part) != parts_of(item.pfs.parts)) {
    return fail(EINVAL, "only the parts " + item.pfs.parts + " of it were loaded");
  }
  return part;
}

/// Opens the directory of results-dir that holds the item's name.
Result<PfsHandle> PartWriter::directory_of(const fs::WalkItem& item) {
  auto top = pfs_.open(no_directory, config_.results_dir, directory_flags);
  return top ? pfs_.open_beneath(*top, parent_of(item.path), directory_flags) : std::move(top);
}

Result<PartWriter::OldVersion> PartWriter::open_old(const fs::WalkItem& item) {
  auto directory = directory_of(item);
  auto file = directory ? pfs_.open_beneath(*directory, leaf_of(item.path), O_RDONLY | O_NONBLOCK)
                        : std::unexpected(directory.error());
  if (!file && file.error().code == ENOENT) {
    return fail(
        ENOENT,
        "results-dir has no version of it that the part could go into; unload all of it first");
  }
  if (!file) {
    return std::unexpected(file.error());
  }
  const auto attributes = pfs_.fstat(*file);
  if (!attributes) {
    return std::unexpected(attributes.error());
  }
  const bool ours = is_ours(in_place_ ? options_.placed : nullptr,
                            {.name = item.path, .own = item.path}, item, *attributes);
  return OldVersion{.directory = std::move(*directory),
                    .file = std::move(*file),
                    .attributes = *attributes,
                    .ours = ours};
}

/// If the replaced version was another user's, nothing is recorded: the remaining bytes are that
/// user's. Otherwise the new version is recorded as this job's, even if its name does not survive
/// a crash. For a new file of the job the ledger has the record.
void PartWriter::record_version(const fs::WalkItem& item, const PartialFile& made,
                                Replaced replaced, ReceiptEntry& entry) {
  if (!made.lost.empty()) {
    entry.reason += "; without " + made.lost;
  }
  const Status noted = replaced.ours     ? record_part(item, made)
                       : replaced.is_new ? record_placed(item, made)
                                         : Status();
  if (!noted) {
    entry.reason += "; the next unload will report a conflict: " + describe(noted.error());
  }
}

/// Replaces the file in results-dir by a version with the part. `entry` gets the checksum or the
/// obstacle.
Result<Part> PartWriter::write(const fs::WalkItem& item, Part asked, ReceiptEntry& entry) {
  const auto part = present_part(item, asked);
  if (!part) {
    return part;
  }
  const auto old = open_old(item);
  if (!old) {
    return std::unexpected(old.error());
  }
  // the copy already has the part; a new version would count as another user's
  if (!item.due_for_export() && is_its_own(old->attributes, item)) {
    return part;
  }
  const bool is_new = in_place_ && !old->ours && is_unknown_name(item);
  EFS_TRY(may_lay_over(item, *old, entry));
  const PartialJob job{
      .item = item,
      .directory = old->directory,
      .partial = partial_name(leaf_of(item.path), options_.partial_tag,
                              buffer_.has(item.path + options_.partial_tag + partial_suffix)),
      .fsync = true};
  const auto made = place_part(job, *part, *old, entry);
  if (!made) {
    return std::unexpected(made.error());
  }
  record_version(item, *made, {.ours = old->ours, .is_new = is_new}, entry);
  EFS_TRY(pfs_.fsync(job.directory));
  if (options_.placed != nullptr) {
    (void)options_.placed->sync();
  }
  entry.checksum = made->checksum;
  return part;
}

Status PartWriter::record_part(const fs::WalkItem& item, const PartialFile& made) try {
  const auto version = version_below(pfs_, publisher_, config_.results_dir, item.path);
  if (!version) {
    return std::unexpected(version.error());
  }
  if (version->inode != made.inode) {
    return {};  // by now another user's
  }
  const Status noted =
      staging_.record_copy(item.path, *version, in_place_, item.pfs.replaced.get());
  // removed meanwhile: the next file of this name replaces it
  const bool is_gone = !noted && noted.error().code == ENOENT;
  if (options_.placed == nullptr || (!noted && !is_gone)) {
    return noted;
  }
  return record_placed(item, made);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

Status PartWriter::record_placed(const fs::WalkItem& item, const PartialFile& made) {
  const auto directory = directory_of(item);
  const auto now =
      directory ? pfs_.lstat(*directory, leaf_of(item.path)) : fail(directory.error().code);
  if (!now) {
    return std::unexpected(now.error());
  }
  if (options_.placed == nullptr || now->st_ino != made.inode) {
    return {};
  }
  return options_.placed->placed({.name = item.path, .own = item.path}, &*now,
                                 publisher_.is_shared(pfs_, *directory, leaf_of(item.path), *now));
}

/// Writes the partial and renames it. After an error no partial is left.
Result<PartialFile> PartWriter::place_part(const PartialJob& job, Part part, const OldVersion& old,
                                           ReceiptEntry& entry) {
  // left by a killed unload; unloads of an instance run one at a time
  (void)pfs_.unlink(job.directory, job.partial);
  auto file = pfs_.open(job.directory, job.partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (!file) {
    return fail(file.error().code, "creating " + job.partial + ": " + describe(file.error()));
  }
  return with_partial(pfs_, job.directory, job.partial, [&]() -> Result<PartialFile> {
    auto made = fill_partial(job, part, old, *file, entry);
    if (!made) {
      (void)pfs_.unlink(job.directory, job.partial);
      return made;
    }
    EFS_TRY(give_name(job, *made, old, entry));
    return made;
  });
}

/// Writes the partial. Then makes all checks and records that must come before its new name.
Result<PartialFile> PartWriter::fill_partial(const PartialJob& job, Part part,
                                             const OldVersion& old, PfsRef file,
                                             ReceiptEntry& entry) {
  Scratch scratch(options_.transfer_size);
  auto made = lay_over(job.item, part, old, file, scratch);
  if (!made) {
    return made;
  }
  if (config_.verify == config::Verify::read_back) {
    EFS_TRY(read_back(job, *made, pfs_, scratch, progress_.cancel));
  }
  EFS_TRY(revoke(job.item.path));
  EFS_TRY(is_still(job.item, old, entry));
  // The replaced version is another user's, and so are the remaining bytes in results-dir.
  if (!job.item.due_for_export() && job.item.pfs.parts.empty()) {
    EFS_TRY(staging_.mark_changed(job.item.ino, job.item.path));
  }
  return made;
}

/// Renames the partial. EEXIST becomes a conflict if the old version was to keep its place until
/// then.
Status PartWriter::give_name(const PartialJob& job, const PartialFile& made, const OldVersion& old,
                             ReceiptEntry& entry) {
  const auto about_to = [&](const struct stat& partial, bool is_shared) {
    if (!old.ours) {
      return;
    }
    (void)buffer_.named(job.item, [&] { return coming_version(partial, is_shared); });
    if (options_.placed != nullptr) {
      (void)options_.placed->coming({.name = job.item.path, .own = job.item.path}, &partial,
                                    &old.attributes);
    }
  };
  if (Status secured = buffer_.secure({&job.item.ino, 1}); !secured) {
    (void)pfs_.unlink(job.directory, job.partial);
    return secured;
  }
  // Nor may it change while the new version gets its name.
  PartialJob last = job;
  last.rule = publisher_.rule_for(&old.attributes);
  const Status named = publish_patiently(last, made, about_to);
  if (!named && is_name_taken(last, named.error())) {
    (void)pfs_.unlink(job.directory, job.partial);
    return conflict(entry, changed_meanwhile);
  }
  return named;
}

/// Waits for another node or job that has a claim to the name.
Status PartWriter::publish_patiently(const PartialJob& job, const PartialFile& made,
                                     const AboutToPublish& about_to) {
  Patience patience(progress_.cancel, *options_.pauses);
  for (;;) {
    const Status named = publish_partial(job, made, pfs_, publisher_, about_to);
    if (named || !is_held(named.error())) {
      return named;
    }
    if (patience.wait({named.error().what})) {
      continue;
    }
    (void)pfs_.unlink(job.directory, job.partial);
    return std::unexpected(given_up(named.error()));
  }
}

Status PartWriter::revoke(const std::string& path) {
  const fs::PfsName name{.path = path};
  return all_disowned(staging_.revoke({&name, 1}, fs::Side::both, result_names(config_)));
}

/// Writes the old version with the part over it to the new file `file`.
Result<PartialFile> PartWriter::lay_over(const fs::WalkItem& item, Part part, const OldVersion& old,
                                         PfsRef file, Scratch& scratch) {
  const struct stat& before = old.attributes;
  const auto old_size = static_cast<std::uint64_t>(before.st_size), end = part.offset + part.length,
             size = std::max(old_size, end);
  progress_.begin(1, size);
  auto container = buffer_.open_container(item.ino);
  if (!container) {
    return std::unexpected(container.error());
  }
  if (part.offset > old_size) {
    return fail(
        EINVAL,
        "the version in results-dir ends before the part begins: a hole would stand for data");
  }
  // The sum of both versions: holes of either are kept.
  const auto blocks = static_cast<std::uint64_t>(before.st_blocks + item.attributes.st_blocks);
  FileChecksum sum(sum_kind_for(size, blocks * 512));
  const PfsContent theirs(pfs_, old.file), to(pfs_, file);
  const ContainerContent ours(*container->container);
  const PartCopy from_old{.source = theirs, .destination = to, .progress = progress_, .sum = &sum};
  const PartCopy from_buffer{.source = ours, .destination = to, .progress = progress_, .sum = &sum};
  EFS_TRY(copy_part(from_old, {0, part.offset}, scratch));
  EFS_TRY(copy_part(from_buffer, part, scratch));
  EFS_TRY(copy_part(from_old, {end, size - end}, scratch));
  EFS_TRY(pfs_.truncate(file, size));
  const auto after = staging_.attributes(item.ino);
  EFS_TRY(buffer_.confirm(item.ino, after &&
                                        after->st_mtim.tv_sec == item.attributes.st_mtim.tv_sec &&
                                        after->st_mtim.tv_nsec == item.attributes.st_mtim.tv_nsec));
  auto lost = take_attributes(old, file);
  if (!lost) {
    return std::unexpected(lost.error());
  }
  EFS_TRY(pfs_.fsync(file));
  auto made = pfs_.fstat(file);
  if (!made) {
    return std::unexpected(made.error());
  }
  ++progress_.files_done;
  return PartialFile{
      .inode = made->st_ino, .size = size, .checksum = sum.finish(), .lost = std::move(*lost)};
}

/// Copies owner, extended attributes and mode from the replaced version. Returns the rejected
/// attributes as set_xattrs().
Result<std::string> PartWriter::take_attributes(const OldVersion& old, PfsRef file) {
  const struct stat& before = old.attributes;
  auto made = pfs_.fstat(file);
  if (!made) {
    return std::unexpected(made.error());
  }
  bool owned = made->st_uid == before.st_uid && made->st_gid == before.st_gid;
  if (!owned) {
    owned = pfs_.chown(file, before.st_uid, before.st_gid).has_value();
  }
  auto attributes = pfs_.xattrs(old.file);
  if (!attributes) {
    return std::unexpected(attributes.error());
  }
  // the directory's default
  if (!attributes->contains(fs::access_acl_name)) {
    (void)pfs_.remove_xattr(file, fs::access_acl_name);
  }
  auto lost = set_xattrs(file, fs::WalkItem{.path = {}, .xattrs = std::move(*attributes)}, pfs_);
  if (!lost) {
    return lost;
  }
  EFS_TRY(pfs_.chmod(file, safe_mode(before.st_mode & 07777U, owned)));
  return lost;
}

}  // namespace efs::stage
