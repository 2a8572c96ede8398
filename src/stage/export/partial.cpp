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
#include "stage/pfs/merge.hpp"
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
                 const AboutToName& about_to) {
  const std::string name = job.name.empty() ? leaf_of(job.item.path) : job.name;
  if (!job.is_new && job.over == nullptr) {
    return pfs.rename(job.directory, job.partial, name, about_to);
  }
  const auto tell = [&] {
    if (about_to) {
      about_to(false);
    }
  };
  if (!job.is_new) {
    return rename_over(pfs, job.directory, job.partial, name, partial, *job.over, tell);
  }
  tell();
  return pfs.rename_new(job.directory, job.partial, name);
}

Error not_named(const Error& error) {
  const bool is_directory = error.code == EISDIR || error.code == ENOTEMPTY;
  return with_context(error, is_directory
                                 ? "a directory has its name: move that away, and try again"
                                 : "giving it its name")
      .error();
}

/// Sets owner, extended attributes, mode and times. The owner comes first, because a change of
/// owner clears setuid bits and capabilities. Returns the rejected attributes as set_xattrs().
Result<std::string> set_attributes(int fd, const PartialJob& job, const struct stat& now,
                                   PfsIo& pfs) {
  const fs::WalkItem& item = job.item;
  const auto& wanted = item.attributes;
  uid_t uid = wanted.st_uid;
  gid_t gid = group_of(item, now.st_gid);
  std::string refused;
  if (now.st_uid != uid || now.st_gid != gid) {
    auto done = pfs.chown(fd, uid, gid);
    if (!done && done.error().code != EPERM) {
      return with_context(done.error(), "setting its owner");
    }
    if (!done && item.group_is_asked && now.st_gid != gid) {
      refused = "its group: " + describe(done.error());
    }
    if (!done) {
      uid = now.st_uid, gid = now.st_gid;
    }
  }
  auto lost = set_xattrs(fd, item, pfs);
  if (!lost) {
    return lost;
  }
  if (!refused.empty()) {
    *lost = refused + (lost->empty() ? "" : "; ") + *lost;
  }
  mode_t mode = mode_of(item, uid, gid);
  if (!item.xattrs.contains(fs::access_acl_name)) {
    mode &= job.acl_allows | 07000U;
  }
  if (mode != (now.st_mode & 07777U)) {
    if (auto done = pfs.chmod(fd, mode); !done) {
      return with_context(done.error(), "setting its mode");
    }
  }
  if (auto done = pfs.set_times(fd, to_ns(wanted.st_atim), to_ns(wanted.st_mtim)); !done) {
    return with_context(done.error(), "setting its times");
  }
  return lost;
}

bool same_version(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && to_ns(a.st_mtim) == to_ns(b.st_mtim);
}

/// Writes data and attributes to the new file `fd`.
Result<PartialFile> fill_partial(const PartialJob& job, int fd, Buffer& buffer, PfsIo& pfs,
                                 Scratch& scratch, Progress& progress) {
  if (is_foreign(job.item)) {
    return fail(EUCLEAN,
                "its container is not what was staged in, though no program has changed it: "
                "somebody has exchanged it, or cut it short; the PFS has it");
  }
  auto container = buffer.hold(job.item.ino);
  if (!container) {
    return with_context(container.error(), "opening its container");
  }
  auto before = posix_pfs().fstat(container->fd);
  if (!before) {
    return with_context(before.error(), "reading its container");
  }
  const auto size = static_cast<std::uint64_t>(before->st_size);
  const std::uint64_t allocated = static_cast<std::uint64_t>(before->st_blocks) * 512;
  FileChecksum sum(sum_kind_for(size, allocated));
  const CopyJob copy{.source = {posix_pfs(), container->fd},
                     .destination = {pfs, fd},
                     .size = size,
                     .allocated = allocated,
                     .early_writeback = true};
  EFS_TRY(copy_data(copy, scratch, &sum, progress));
  auto after = posix_pfs().fstat(container->fd);
  EFS_TRY(buffer.confirm(job.item.ino, after && same_version(*before, *after)));
  auto written = pfs.fstat(fd);
  if (!written) {
    return with_context(written.error(), "reading back its attributes");
  }
  if (static_cast<std::uint64_t>(written->st_size) != size) {
    // a network client reports a full server only now
    if (auto done = pfs.fsync(fd); !done) {
      return with_context(done.error(), "fsync");
    }
    return fail(EIO, "the PFS has another size than was written");
  }
  if (job.inherits_acl && !job.item.xattrs.contains(fs::access_acl_name)) {
    auto done = pfs.remove_xattr(fd, fs::access_acl_name);
    if (!done && done.error().code != ENODATA && done.error().code != EOPNOTSUPP) {
      return with_context(done.error(), "taking the directory's default ACL from it");
    }
  }
  auto lost = set_attributes(fd, job, *written, pfs);
  if (!lost) {
    return std::unexpected(lost.error());
  }
  if (job.fsync || written->st_dev != job.synced) {
    if (auto done = pfs.fsync(fd); !done) {
      return with_context(done.error(), "fsync");
    }
  }
  return PartialFile{
      .inode = written->st_ino, .size = size, .checksum = sum.finish(), .lost = std::move(*lost)};
}

Result<PartialFile> write_file(const PartialJob& job, Buffer& buffer, PfsIo& pfs, Scratch& scratch,
                               Progress& progress) {
  const auto& wanted = job.item.attributes;
  // Users without read access to the result must not read its partial. Until owner and group are
  // set, only this user may read it.
  const bool ours = wanted.st_uid == ::geteuid() && job.item.plain_group.has_value();
  // Nor may users that only the directory's default ACL names: a mode without group bits masks
  // them. The owner keeps write access until the end, because setting extended attributes needs it.
  const mode_t mode = ours && !job.inherits_acl ? (wanted.st_mode & 0777U) | 0200U : 0600U;
  auto fd = make_partial(job, pfs, [&] {
    return pfs.open(job.directory, job.partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  });
  if (!fd) {
    return with_context(fd.error(), "creating it");
  }
  auto written = fill_partial(job, fd->get(), buffer, pfs, scratch, progress);
  if (written) {
    return written;
  }
  // NFS only renames an open file when it is removed: the file would stay and take space on a full
  // server
  fd->reset();
  return without_partial(job, written.error(), pfs);
}

Result<PartialFile> write_link(const PartialJob& job, PfsIo& pfs) {
  const auto& wanted = job.item.attributes;
  auto made = make_partial(
      job, pfs, [&] { return pfs.symlink(job.item.target, job.directory, job.partial); });
  if (!made) {
    return with_context(made.error(), "creating the symbolic link");
  }
  auto now = pfs.lstat(job.directory, job.partial);
  Status done = now ? Status() : std::unexpected(now.error());
  const gid_t gid = now ? group_of(job.item, now->st_gid) : wanted.st_gid;
  if (done && (now->st_uid != wanted.st_uid || now->st_gid != gid)) {
    done = pfs.chown_name(job.directory, job.partial, wanted.st_uid, gid);
    if (!done && done.error().code == EPERM) {
      done = Status();
    }
  }
  if (done) {
    done = pfs.set_times_name(job.directory, job.partial, to_ns(wanted.st_atim),
                              to_ns(wanted.st_mtim));
  }
  if (done) {
    return PartialFile{
        .inode = now->st_ino, .size = job.item.target.size(), .checksum = std::nullopt};
  }
  return without_partial(
      job, with_context(done.error(), "setting the symbolic link's attributes").error(), pfs);
}

}  // namespace

Result<PartialFile> write_partial(const PartialJob& job, Buffer& buffer, PfsIo& pfs,
                                  Scratch& scratch, Progress& progress) {
  return S_ISLNK(job.item.attributes.st_mode) ? write_link(job, pfs)
                                              : write_file(job, buffer, pfs, scratch, progress);
}

Status publish_partial(const PartialJob& job, const PartialFile& written, PfsIo& pfs,
                       const AboutToPublish& about_to) {
  auto now = pfs.lstat(job.directory, job.partial);
  Status done = now ? Status() : Status(with_context(now.error(), "checking its partial"));
  if (done &&
      (now->st_ino != written.inode || static_cast<std::uint64_t>(now->st_size) != written.size)) {
    // Another process's file has the partial's name; this process must not remove it.
    return fail(ESTALE, "its partial was replaced or changed by someone else");
  }
  if (done) {
    done = give_name(job, *now, pfs, [&](bool is_shared) {
      if (about_to) {
        about_to(*now, is_shared);
      }
    });
  }
  if (done || is_held(done.error()) ||
      ((job.is_new || job.over != nullptr) && done.error().code == EEXIST)) {
    return done;
  }
  return without_partial(job, not_named(done.error()), pfs);
}

Status read_back(const PartialJob& job, const PartialFile& written, PfsIo& pfs, Scratch& scratch,
                 const std::atomic<bool>& cancel) {
  auto fd = open_owned(job.directory, job.partial, written.inode, pfs);
  if (!fd) {
    return with_context(fd.error(), "reading it back");
  }
  pfs.drop_cache(fd->get());
  auto sum = hash_data({pfs, fd->get()}, written.size, written.checksum->kind, scratch, cancel);
  if (!sum) {
    return with_context(sum.error(), "reading it back");
  }
  if (*sum != *written.checksum) {
    return fail(EIO, "reading it back: the PFS holds other data than were written");
  }
  return {};
}

Status link_partial(int from_at, const std::string& from, const PartialJob& job, PfsIo& pfs,
                    const AboutToName& about_to) {
  auto made = make_afresh(pfs, job.directory, job.partial,
                          [&] { return pfs.link(from_at, from, job.directory, job.partial); });
  if (!made) {
    return fail(made.error().code, "linking it: " + describe(made.error()));
  }
  const auto now = pfs.lstat(job.directory, job.partial);
  auto done = now ? give_name(job, *now, pfs, about_to) : std::unexpected(now.error());
  if (done) {
    return done;
  }
  if (done.error().code == EEXIST && (job.is_new || job.over != nullptr)) {
    done = fail(EEXIST,
                "somebody has changed, replaced or removed what had its name: the job's version is "
                "kept in the buffer only");
  }
  const bool tells = done.error().code == EEXIST || is_held(done.error());
  return without_partial(job, tells ? done.error() : not_named(done.error()), pfs);
}

}  // namespace efs::stage
