// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/partial.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/checksum.hpp"
#include "fs/acl.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/pfs/attributes.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/open_owned.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/versions/placed_names.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {
namespace {

/// Removes the partial and returns `error`. If the removal fails, the error says so too.
std::unexpected<Error> without_partial(const PartialJob& job, Error error, PfsIo& pfs) {
  const Status gone = pfs.unlink(job.directory, job.partial);
  if (!gone && gone.error().code != ENOENT) {
    error.what = describe(error) + "; " + left_behind(job.partial, gone.error());
  }
  return std::unexpected(std::move(error));
}

template <typename Make>
auto make_partial(const PartialJob& job, PfsIo& pfs, Make make) {
  return job.is_hidden ? make() : make_afresh(pfs, job.directory, job.partial, make);
}

Status give_name(const PartialJob& job, const struct stat& partial, PfsIo& pfs,
                 Publisher& publisher, const AboutToName& about_to) {
  const std::string name = job.name.empty() ? leaf_of(job.item.path) : job.name;
  return publisher.publish(pfs,
                           {.names = {.at = job.directory, .from = job.partial, .to = name},
                            .partial = partial,
                            .rule = job.rule},
                           about_to);
}

Error not_named(const Error& error) {
  const bool is_directory = error.code == EISDIR || error.code == ENOTEMPTY;
  return with_context(error, is_directory
                                 ? "a directory has its name: move that away, and try again"
                                 : "giving it its name")
      .error();
}

/// The owner and the group that a partial has. `refused`: the group that results-group asks for and
/// the PFS rejected; "": none.
struct PartialOwner {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string refused{};
};

Result<PartialOwner> set_owner(PfsRef file, const fs::WalkItem& item, const struct stat& now,
                               PfsIo& pfs) {
  const uid_t uid = item.attributes.st_uid;
  const gid_t gid = group_of(item, now.st_gid);
  if (now.st_uid == uid && now.st_gid == gid) {
    return PartialOwner{.uid = uid, .gid = gid};
  }
  const auto done = pfs.chown(file, uid, gid);
  if (done) {
    return PartialOwner{.uid = uid, .gid = gid};
  }
  if (done.error().code != EPERM) {
    return with_context(done.error(), "setting its owner");
  }
  PartialOwner owner{.uid = now.st_uid, .gid = now.st_gid};
  if (item.group.is_asked && now.st_gid != gid) {
    owner.refused = "its group: " + describe(done.error());
  }
  return owner;
}

/// Sets owner, extended attributes, mode and times. The owner comes first, because a change of
/// owner clears setuid bits and capabilities. Returns the rejected attributes as set_xattrs().
Result<std::string> set_attributes(PfsRef file, const PartialJob& job, const struct stat& now,
                                   PfsIo& pfs) {
  const fs::WalkItem& item = job.item;
  const auto& wanted = item.attributes;
  const auto owner = set_owner(file, item, now, pfs);
  if (!owner) {
    return std::unexpected(owner.error());
  }
  auto lost = set_xattrs(file, item, pfs);
  if (!lost) {
    return lost;
  }
  if (!owner->refused.empty()) {
    *lost = owner->refused + (lost->empty() ? "" : "; ") + *lost;
  }
  mode_t mode = mode_of(item, owner->uid, owner->gid);
  if (!item.xattrs.contains(fs::access_acl_name)) {
    mode &= job.acl_allows | 07000U;
  }
  if (mode != (now.st_mode & 07777U)) {
    if (auto done = pfs.chmod(file, mode); !done) {
      return with_context(done.error(), "setting its mode");
    }
  }
  if (auto done = pfs.set_times(file, to_ns(wanted.st_atim), to_ns(wanted.st_mtim)); !done) {
    return with_context(done.error(), "setting its times");
  }
  return lost;
}

bool same_version(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && to_ns(a.st_mtim) == to_ns(b.st_mtim);
}

/// The objects that writing a partial uses.
struct PartialMeans {
  ExportSource& buffer;
  PfsIo& pfs;
  Scratch& scratch;
  Progress& progress;
};

/// The content as read from the buffer.
struct CopiedContent {
  std::uint64_t size = 0;
  FileSum checksum;
};

/// Copies the content of the open `container` to the new file `file`. The buffer confirms the copy.
Result<CopiedContent> copy_container(const PartialJob& job, Container& container, PfsRef file,
                                     const PartialMeans& with) {
  const auto before = container.attributes();
  if (!before) {
    return with_context(before.error(), "reading its container");
  }
  const auto size = static_cast<std::uint64_t>(before->st_size);
  const std::uint64_t allocated = static_cast<std::uint64_t>(before->st_blocks) * 512;
  FileChecksum sum(sum_kind_for(size, allocated));
  const ContainerContent from(container);
  const PfsContent to(with.pfs, file);
  const CopyJob copy{.source = from,
                     .destination = to,
                     .size = size,
                     .allocated = allocated,
                     .early_writeback = true};
  EFS_TRY(copy_data(copy, with.scratch, &sum, with.progress));
  const auto after = container.attributes();
  EFS_TRY(with.buffer.confirm(job.item.ino, after && same_version(*before, *after)));
  return CopiedContent{.size = size, .checksum = sum.finish()};
}

/// Removes the ACL that the new file has inherited from its directory, unless the item has one.
Status remove_inherited_acl(PfsRef file, const PartialJob& job, PfsIo& pfs) {
  if (!job.inherits_acl || job.item.xattrs.contains(fs::access_acl_name)) {
    return {};
  }
  const auto done = pfs.remove_xattr(file, fs::access_acl_name);
  if (!done && done.error().code != ENODATA && done.error().code != EOPNOTSUPP) {
    return with_context(done.error(), "taking the directory's default ACL from it");
  }
  return {};
}

Status sync_partial(PfsRef file, PfsIo& pfs) {
  const auto done = pfs.fsync(file);
  return done ? Status() : Status(with_context(done.error(), "fsync"));
}

/// Writes data and attributes to the new file `file`.
Result<PartialFile> fill_partial(const PartialJob& job, PfsRef file, const PartialMeans& with) {
  if (is_foreign(job.item)) {
    return fail(EUCLEAN,
                "its container is not what was staged in: it was exchanged or truncated outside "
                "efs; the PFS has it");
  }
  const auto container = with.buffer.open_container(job.item.ino);
  if (!container) {
    return with_context(container.error(), "opening its container");
  }
  const auto copied = copy_container(job, *container->container, file, with);
  if (!copied) {
    return std::unexpected(copied.error());
  }
  const auto written = with.pfs.fstat(file);
  if (!written) {
    return with_context(written.error(), "reading back its attributes");
  }
  if (static_cast<std::uint64_t>(written->st_size) != copied->size) {
    // a network client reports a full server only now
    EFS_TRY(sync_partial(file, with.pfs));
    return fail(EIO, "the PFS has another size than was written");
  }
  EFS_TRY(remove_inherited_acl(file, job, with.pfs));
  auto lost = set_attributes(file, job, *written, with.pfs);
  if (!lost) {
    return std::unexpected(lost.error());
  }
  if (job.fsync || written->st_dev != job.synced) {
    EFS_TRY(sync_partial(file, with.pfs));
  }
  return PartialFile{.inode = written->st_ino,
                     .size = copied->size,
                     .checksum = copied->checksum,
                     .lost = std::move(*lost)};
}

Result<PartialFile> write_file(const PartialJob& job, const PartialMeans& with) {
  const auto& wanted = job.item.attributes;
  PfsIo& pfs = with.pfs;
  // Users without read access to the result must not read its partial. Until owner and group are
  // set, only this user may read it.
  const bool ours = wanted.st_uid == ::geteuid() && job.item.group.plain.has_value();
  // Nor may users that only the directory's default ACL names: a mode without group bits masks
  // them. The owner keeps write access until the end, because setting extended attributes needs it.
  const mode_t mode = ours && !job.inherits_acl ? (wanted.st_mode & 0777U) | 0200U : 0600U;
  auto file = make_partial(job, pfs, [&] {
    return pfs.open(job.directory, job.partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  });
  if (!file) {
    return with_context(file.error(), "creating it");
  }
  auto written = fill_partial(job, *file, with);
  if (written) {
    return written;
  }
  // NFS only renames an open file when it is removed: the file would stay and take space on a full
  // server
  *file = {};
  return without_partial(job, written.error(), pfs);
}

/// Sets the owner, if permitted, and the times of the symbolic link.
Status set_link_attributes(const PartialJob& job, const struct stat& now, PfsIo& pfs) {
  const auto& wanted = job.item.attributes;
  const gid_t gid = group_of(job.item, now.st_gid);
  if (now.st_uid != wanted.st_uid || now.st_gid != gid) {
    const auto done = pfs.chown_name(job.directory, job.partial, wanted.st_uid, gid);
    if (!done && done.error().code != EPERM) {
      return done;
    }
  }
  return pfs.set_times_name(job.directory, job.partial, to_ns(wanted.st_atim),
                            to_ns(wanted.st_mtim));
}

Result<PartialFile> write_link(const PartialJob& job, PfsIo& pfs) {
  auto made = make_partial(
      job, pfs, [&] { return pfs.symlink(job.item.target, job.directory, job.partial); });
  if (!made) {
    return with_context(made.error(), "creating the symbolic link");
  }
  const auto now = pfs.lstat(job.directory, job.partial);
  const Status done = now ? set_link_attributes(job, *now, pfs) : std::unexpected(now.error());
  if (done) {
    return PartialFile{
        .inode = now->st_ino, .size = job.item.target.size(), .checksum = std::nullopt};
  }
  return without_partial(
      job, with_context(done.error(), "setting the symbolic link's attributes").error(), pfs);
}

}  // namespace

Result<PartialFile> write_partial(const PartialJob& job, ExportSource& buffer, PfsIo& pfs,
                                  Scratch& scratch, Progress& progress) {
  return S_ISLNK(job.item.attributes.st_mode)
             ? write_link(job, pfs)
             : write_file(job,
                          {.buffer = buffer, .pfs = pfs, .scratch = scratch, .progress = progress});
}

bool is_name_taken(const PartialJob& job, const Error& error) {
  return error.code == EEXIST && job.rule.is_bound();
}

Status publish_partial(const PartialJob& job, const PartialFile& written, PfsIo& pfs,
                       Publisher& publisher, const AboutToPublish& about_to) {
  const auto now = pfs.lstat(job.directory, job.partial);
  if (now &&
      (now->st_ino != written.inode || static_cast<std::uint64_t>(now->st_size) != written.size)) {
    // Another process's file has the partial's name; this process must not remove it.
    return fail(ESTALE, "its partial was replaced or changed by another process");
  }
  const auto tell = [&](bool is_shared) {
    if (about_to) {
      about_to(*now, is_shared);
    }
  };
  const Status done = now ? give_name(job, *now, pfs, publisher, tell)
                          : Status(with_context(now.error(), "checking its partial"));
  if (done || is_held(done.error()) || is_name_taken(job, done.error())) {
    return done;
  }
  return without_partial(job, not_named(done.error()), pfs);
}

Status read_back(const PartialJob& job, const PartialFile& written, PfsIo& pfs, Scratch& scratch,
                 const std::atomic<bool>& cancel) {
  auto file = open_owned(job.directory, job.partial, written.inode, pfs);
  if (!file) {
    return with_context(file.error(), "reading it back");
  }
  pfs.drop_cache(*file);
  auto sum =
      hash_data(PfsContent(pfs, *file), written.size, written.checksum->kind, scratch, cancel);
  if (!sum) {
    return with_context(sum.error(), "reading it back");
  }
  if (*sum != *written.checksum) {
    return fail(EIO, "reading it back: the PFS holds other data than were written");
  }
  return {};
}

Status link_partial(const LinkSource& from, const PartialJob& job, PfsIo& pfs, Publisher& publisher,
                    const AboutToName& about_to) {
  auto made = make_afresh(pfs, job.directory, job.partial, [&] {
    return pfs.link(from.directory, from.name, job.directory, job.partial);
  });
  if (!made) {
    return fail(made.error().code, "linking it: " + describe(made.error()));
  }
  Status done = with_partial(pfs, job.directory, job.partial, [&]() -> Status {
    const auto now = pfs.lstat(job.directory, job.partial);
    return now ? give_name(job, *now, pfs, publisher, about_to) : std::unexpected(now.error());
  });
  if (done) {
    return done;
  }
  if (is_name_taken(job, done.error())) {
    done = fail(
        EEXIST,
        "the file of its name was changed, replaced or removed on the PFS: the job's version is "
        "kept in the buffer only");
  }
  const bool tells = done.error().code == EEXIST || is_held(done.error());
  return without_partial(job, tells ? done.error() : not_named(done.error()), pfs);
}

}  // namespace efs::stage
