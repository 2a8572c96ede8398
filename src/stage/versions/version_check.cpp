// SPDX-License-Identifier: BSD-3-Clause
#include "stage/versions/version_check.hpp"

#include <algorithm>

#include "fs/acl.hpp"
#include "stage/pfs/attributes.hpp"
#include "stage/pfs/open_owned.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

bool is_origin(const struct stat& now, const fs::WalkItem& item) {
  const auto is_now = [&](const std::optional<fs::Origin>& known, bool linked) {
    if (!known || known->ctime == 0) {
      return false;
    }
    linked = linked || known->ctime == fs::Origin::any_ctime;
    const fs::Origin version{.device = known->device,
                             .inode = now.st_ino,
                             .size = static_cast<std::uint64_t>(now.st_size),
                             .mtime = to_ns(now.st_mtim),
                             .ctime = linked ? known->ctime : to_ns(now.st_ctim)};
    return version == *known;
  };
  // A result's ctime changes when efs gives its copy another name or replaces one of its names; the
  // copy may have had several.
  const bool only_saved = !item.origin && !item.replaced;
  if (is_now(item.saved, item.linked || item.saved_linked || only_saved || now.st_nlink > 1) ||
      is_now(item.origin, item.linked)) {
    return true;
  }
  return item.replaced && (is_now(item.replaced->saved, item.replaced->linked) ||
                           is_now(item.replaced->origin, item.replaced->linked));
}

bool same_or_coarser(const struct timespec& theirs, const struct timespec& ours) {
  return theirs.tv_sec == ours.tv_sec && (theirs.tv_nsec == ours.tv_nsec || theirs.tv_nsec == 0);
}

bool is_copy(const struct stat& now, const fs::Origin& copy) {
  return now.st_ino == copy.inode && static_cast<std::uint64_t>(now.st_size) == copy.size &&
         to_ns(now.st_mtim) == copy.mtime;
}

bool is_untouched_copy(const struct stat& now, const fs::WalkItem& item) {
  const bool tells_nothing = item.linked || item.saved_linked || now.st_nlink > 1 ||
                             item.saved->ctime == 0 || item.saved->ctime == fs::Origin::any_ctime;
  return is_copy(now, *item.saved) && (tells_nothing || to_ns(now.st_ctim) == item.saved->ctime);
}

bool is_foreign(const fs::WalkItem& item) {
  if (!S_ISREG(item.attributes.st_mode) || !item.content || !item.unreadable.empty()) {
    return false;
  }
  return static_cast<std::uint64_t>(item.attributes.st_size) != item.content->size ||
         !same_or_coarser(item.attributes.st_mtim, to_timespec(item.content->mtime));
}

namespace {

/// True if the copy has the size and the time of the file in the buffer. A PFS may keep whole
/// seconds only.
bool has_stamp(const struct stat& copy, const struct stat& ours) {
  return copy.st_size == ours.st_size && same_or_coarser(copy.st_mtim, ours.st_mtim);
}

/// Compares with the mode that write_partial() sets. Unless in place, a default ACL of the
/// directory may have removed bits.
bool same_mode(const struct stat& there, const fs::WalkItem& item, bool in_place) {
  const mode_t wanted = mode_of(item, there.st_uid, there.st_gid), now = there.st_mode & 07777U;
  const bool is_part = (now & wanted) == now && !item.xattrs.contains(fs::access_acl_name);
  return now == wanted || (!in_place && is_part);
}

/// The target of an imported symbolic link, or of one that the job has replaced.
constexpr const char* comparing_versions = "comparing it with what the PFS has";

bool is_target_of_origin(const std::string& target, const fs::WalkItem& item) {
  // If another version was exported since, the PFS must have that version. (A version that was only
  // announced may be missing.)
  const auto is_out = [](const std::optional<fs::Origin>& copy) {
    return copy && copy->ctime != fs::Origin::any_ctime;
  };
  if (is_out(item.saved) || (item.replaced && is_out(item.replaced->saved))) {
    return false;
  }
  if (item.origin && S_ISLNK(item.attributes.st_mode)) {
    return target == item.target;
  }
  return item.replaced && S_ISLNK(item.replaced->type) && target == item.replaced->target;
}

/// Hashes both files by the method that suits the file in the buffer.
Result<FileSum> hash_of(PfsIo& io, int fd, const fs::WalkItem& item, Scratch& scratch,
                        const std::atomic<bool>& cancel) {
  const auto size = static_cast<std::uint64_t>(item.attributes.st_size);
  const auto allocated = static_cast<std::uint64_t>(item.attributes.st_blocks) * 512;
  return hash_data({io, fd}, size, sum_kind_for(size, allocated), scratch, cancel);
}

/// Compares the item with a link or a regular file that has no record as the item's own.
Result<PfsCheck> compare(const fs::WalkItem& item, const Comparand& with, const struct stat& now,
                         int directory, Buffer& buffer, PfsIo& pfs, Scratch& scratch,
                         const std::atomic<bool>& cancel) {
  const bool has_group = now.st_gid == group_of(item, now.st_gid);
  const bool owned = now.st_uid == item.attributes.st_uid && has_group;
  if (S_ISLNK(now.st_mode) && S_ISLNK(item.attributes.st_mode)) {
    const auto target = pfs.readlink(directory, with.name);
    if (!target) {
      return with_context(target.error(), comparing_versions);
    }
    if (*target == item.target && same_or_coarser(now.st_mtim, item.attributes.st_mtim)) {
      return PfsCheck{.version = owned && !pfs.is_shared(directory, with.name, now)
                                     ? PfsVersion::same_content
                                     : PfsVersion::same_data};
    }
  }
  if (!S_ISREG(now.st_mode) || !S_ISREG(item.attributes.st_mode) ||
      !has_stamp(now, item.attributes) || !same_mode(now, item, with.to_origin)) {
    return PfsCheck{.version = PfsVersion::other};
  }
  auto theirs = open_owned(directory, with.name, now.st_ino, pfs);
  // The user may not read the file, so it counts as another version.
  if (!theirs && theirs.error().code == EACCES) {
    return PfsCheck{.version = PfsVersion::other};
  }
  if (!theirs) {
    return with_context(theirs.error(), comparing_versions);
  }
  auto ours = buffer.hold(item.ino);
  if (!ours) {
    return with_context(ours.error(), "opening its container");
  }
  auto their_sum = hash_of(pfs, theirs->get(), item, scratch, cancel);
  auto our_sum = hash_of(posix_pfs(), ours->fd, item, scratch, cancel);
  if (!their_sum || !our_sum) {
    return with_context(their_sum ? our_sum.error() : their_sum.error(), comparing_versions);
  }
  if (*their_sum != *our_sum) {
    return PfsCheck{.version = PfsVersion::other};
  }
  auto attributes = pfs.xattrs(theirs->get());
  if (!attributes) {
    return with_context(attributes.error(), comparing_versions);
  }
  const bool has_less = (now.st_mode & 07777U) != mode_of(item, now.st_uid, now.st_gid);
  const bool is_by_acl = attributes->contains(fs::access_acl_name);
  if (has_less && !is_by_acl) {
    return PfsCheck{.version = PfsVersion::other};  // a chmod on the PFS
  }
  if (!with.to_origin && !item.saved && !item.xattrs.contains(fs::access_acl_name)) {
    attributes->erase(fs::access_acl_name);
  }
  // Another node's file does not count as this node's. This node's file replaces it, so that
  // neither node replaces it later.
  const auto compared = pfs.fstat(theirs->get());
  if (!compared) {
    return with_context(compared.error(), comparing_versions);
  }
  if (owned && *attributes == item.xattrs) {
    return pfs.is_shared(directory, with.name, *compared)
               ? PfsCheck{.version = PfsVersion::same_data}
               : PfsCheck{.version = PfsVersion::same_content, .checksum = *our_sum};
  }
  // Attributes that the copy lacks were set since, or were rejected by the PFS. Additional
  // attributes are another user's, or the job has removed them since.
  const bool lacks_only = std::ranges::all_of(*attributes, [&](const auto& one) {
    return item.xattrs.contains(one.first) && item.xattrs.at(one.first) == one.second;
  });
  return PfsCheck{.version =
                      lacks_only || !with.to_origin ? PfsVersion::same_data : PfsVersion::other};
}

Result<PfsCheck> check_there(const fs::WalkItem& item, const Comparand& with,
                             const struct stat& now, int directory, Buffer& buffer, PfsIo& pfs,
                             Scratch& scratch, const std::atomic<bool>& cancel) {
  const WhoseCopy whose =
      with.placed == nullptr
          ? WhoseCopy::unknown
          : with.placed->look({.name = item.path, .own = buffer.own_path(item.path)}, now,
                              item.origin || item.replaced);
  if (whose == WhoseCopy::of_another_path) {
    return PfsCheck{.version = PfsVersion::of_another_path};
  }
  if (with.to_origin && (whose == WhoseCopy::ours || (is_unknown(whose) && is_origin(now, item)))) {
    return PfsCheck{};
  }
  if (with.to_origin && S_ISLNK(now.st_mode) && is_unknown(whose)) {
    const auto target = pfs.readlink(directory, with.name);
    if (!target) {
      return with_context(target.error(), comparing_versions);
    }
    if (is_target_of_origin(*target, item)) {
      return PfsCheck{};
    }
  }
  auto check = compare(item, with, now, directory, buffer, pfs, scratch, cancel);
  if (check) {
    check->whose = whose;
  }
  return check;
}

}  // namespace

Result<PfsCheck> check_version(const fs::WalkItem& item, const Comparand& with, int directory,
                               Buffer& buffer, PfsIo& pfs, Scratch& scratch,
                               const std::atomic<bool>& cancel) {
  auto now = pfs.lstat(directory, with.name);
  // Removed there since: exporting it again loses nothing.
  if (!now && now.error().code == ENOENT) {
    return PfsCheck{};
  }
  if (!now) {
    return with_context(now.error(), comparing_versions);
  }
  auto check = check_there(item, with, *now, directory, buffer, pfs, scratch, cancel);
  if (check) {
    check->exists = true, check->seen = *now;
  }
  return check;
}

}  // namespace efs::stage
