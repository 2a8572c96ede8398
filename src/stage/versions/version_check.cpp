// SPDX-License-Identifier: BSD-3-Clause
#include "stage/versions/version_check.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "fs/acl.hpp"
#include "stage/pfs/attributes.hpp"
#include "stage/pfs/open_owned.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

namespace {

/// True if `now` is the version `known`. `linked`: its ctime does not count.
bool is_recorded(const struct stat& now, const std::optional<fs::Origin>& known, bool linked) {
  return known && is_version(*known, ledger::version_of(now),
                             linked ? ledger::Ctime::ignored : ledger::Ctime::counts);
}

}  // namespace

bool is_origin(const struct stat& now, const fs::WalkItem& item) {
  // A result's ctime changes when efs gives its copy another name or replaces one of its names; the
  // copy may have had several.
  const bool only_saved = !item.pfs.origin && !item.pfs.replaced;
  const bool saved_linked =
      item.pfs.linked || item.pfs.saved_linked || only_saved || now.st_nlink > 1;
  if (is_recorded(now, item.pfs.saved, saved_linked) ||
      is_recorded(now, item.pfs.origin, item.pfs.linked)) {
    return true;
  }
  return item.pfs.replaced &&
         (is_recorded(now, item.pfs.replaced->saved, item.pfs.replaced->linked) ||
          is_recorded(now, item.pfs.replaced->origin, item.pfs.replaced->linked));
}

bool same_or_coarser(const struct timespec& theirs, const struct timespec& ours) {
  return theirs.tv_sec == ours.tv_sec && (theirs.tv_nsec == ours.tv_nsec || theirs.tv_nsec == 0);
}

bool is_copy(const struct stat& now, const fs::Origin& copy) {
  return is_same_file(copy, ledger::version_of(now));
}

bool is_untouched_copy(const struct stat& now, const fs::WalkItem& item) {
  const bool tells_nothing = item.pfs.linked || item.pfs.saved_linked || now.st_nlink > 1 ||
                             item.pfs.saved->ctime == 0 ||
                             item.pfs.saved->ctime == fs::Origin::any_ctime;
  return is_copy(now, *item.pfs.saved) &&
         (tells_nothing || to_ns(now.st_ctim) == item.pfs.saved->ctime);
}

bool is_foreign(const fs::WalkItem& item) {
  if (!S_ISREG(item.attributes.st_mode) || !item.pfs.content || !item.content.unreadable.empty()) {
    return false;
  }
  return static_cast<std::uint64_t>(item.attributes.st_size) != item.pfs.content->size ||
         !same_or_coarser(item.attributes.st_mtim, to_timespec(item.pfs.content->mtime));
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

constexpr const char* comparing_versions = "comparing it with what the PFS has";

/// The target of an imported symbolic link, or of one that the job has replaced.
bool is_target_of_origin(const std::string& target, const fs::WalkItem& item) {
  // If another version was exported since, the PFS must have that version. (A version that was only
  // announced may be missing.)
  const auto is_out = [](const std::optional<fs::Origin>& copy) {
    return copy && copy->ctime != fs::Origin::any_ctime;
  };
  if (is_out(item.pfs.saved) || (item.pfs.replaced && is_out(item.pfs.replaced->saved))) {
    return false;
  }
  if (item.pfs.origin && S_ISLNK(item.attributes.st_mode)) {
    return target == item.target;
  }
  return item.pfs.replaced && S_ISLNK(item.pfs.replaced->type) &&
         target == item.pfs.replaced->target;
}

/// Hashes both files by the method that suits the file in the buffer.
Result<FileSum> hash_of(const ContentSource& source, const fs::WalkItem& item, Scratch& scratch,
                        const std::atomic<bool>& cancel) {
  const auto size = static_cast<std::uint64_t>(item.attributes.st_size);
  const auto allocated = static_cast<std::uint64_t>(item.attributes.st_blocks) * 512;
  return hash_data(source, size, sum_kind_for(size, allocated), scratch, cancel);
}

/// An item, and a link or a regular file on the PFS that has the name of `with`.
struct VersionPair {
  const fs::WalkItem& item;
  const Comparand& with;
  const struct stat& now;
  const VersionMeans& means;

  bool has_same_owner() const {
    const bool has_group = now.st_gid == group_of(item, now.st_gid);
    return now.st_uid == item.attributes.st_uid && has_group;
  }

  /// `there`: `now`, or as it is after the comparison.
  bool may_be_shared(const struct stat& there) const {
    return means.publisher.is_shared(means.pfs, with.directory, with.name, there);
  }
};

Result<PfsCheck> compare_links(const VersionPair& pair) {
  const auto target = pair.means.pfs.readlink(pair.with.directory, pair.with.name);
  if (!target) {
    return with_context(target.error(), comparing_versions);
  }
  if (*target != pair.item.target ||
      !same_or_coarser(pair.now.st_mtim, pair.item.attributes.st_mtim)) {
    return PfsCheck{.version = PfsVersion::other};
  }
  return PfsCheck{.version = pair.has_same_owner() && !pair.may_be_shared(pair.now)
                                 ? PfsVersion::same_content
                                 : PfsVersion::same_data};
}

/// True if the item has all these extended attributes.
bool has_only(const fs::WalkItem& item, const std::map<std::string, std::string>& attributes) {
  return std::ranges::all_of(attributes, [&](const auto& one) {
    const auto own = item.xattrs.find(one.first);
    return own != item.xattrs.end() && own->second == one.second;
  });
}

/// True if the copy may have an ACL from its directory, and the item has none.
bool may_have_inherited_acl(const VersionPair& pair) {
  return !pair.with.to_origin && !pair.item.pfs.saved &&
         !pair.item.xattrs.contains(fs::access_acl_name);
}

/// For files with the same data, of which `theirs` is open. `sum`: of these data.
Result<PfsCheck> compare_attributes(const VersionPair& pair, PfsRef theirs, const FileSum& sum) {
  const auto& [item, with, now, means] = pair;
  auto attributes = means.pfs.xattrs(theirs);
  if (!attributes) {
    return with_context(attributes.error(), comparing_versions);
  }
  const bool has_less = (now.st_mode & 07777U) != mode_of(item, now.st_uid, now.st_gid);
  if (has_less && !attributes->contains(fs::access_acl_name)) {
    return PfsCheck{.version = PfsVersion::other};  // a chmod on the PFS
  }
  if (may_have_inherited_acl(pair)) {
    attributes->erase(fs::access_acl_name);
  }
  // Another node's file does not count as this node's. This node's file replaces it, so that
  // neither node replaces it later.
  const auto compared = means.pfs.fstat(theirs);
  if (!compared) {
    return with_context(compared.error(), comparing_versions);
  }
  if (pair.has_same_owner() && *attributes == item.xattrs) {
    return pair.may_be_shared(*compared)
               ? PfsCheck{.version = PfsVersion::same_data}
               : PfsCheck{.version = PfsVersion::same_content, .checksum = sum};
  }
  // Attributes that the copy lacks were set since, or were rejected by the PFS. Additional
  // attributes are another user's, or the job has removed them since.
  return PfsCheck{.version = has_only(item, *attributes) || !with.to_origin ? PfsVersion::same_data
                                                                            : PfsVersion::other};
}

Result<PfsCheck> compare_files(const VersionPair& pair) {
  const auto& [item, with, now, means] = pair;
  auto theirs = open_owned(with.directory, with.name, now.st_ino, means.pfs);
  // The user may not read the file, so it counts as another version.
  if (!theirs && theirs.error().code == EACCES) {
    return PfsCheck{.version = PfsVersion::other};
  }
  if (!theirs) {
    return with_context(theirs.error(), comparing_versions);
  }
  auto ours = means.buffer.open_container(item.ino);
  if (!ours) {
    return with_context(ours.error(), "opening its container");
  }
  auto their_sum = hash_of(PfsContent(means.pfs, *theirs), item, means.scratch, means.cancel);
  auto our_sum = hash_of(ContainerContent(*ours->container), item, means.scratch, means.cancel);
  if (!their_sum || !our_sum) {
    return with_context(their_sum ? our_sum.error() : their_sum.error(), comparing_versions);
  }
  if (*their_sum != *our_sum) {
    return PfsCheck{.version = PfsVersion::other};
  }
  return compare_attributes(pair, *theirs, *our_sum);
}

/// Compares the two if no record calls the one on the PFS the item's own.
Result<PfsCheck> compare_versions(const VersionPair& pair) {
  const auto& [item, with, now, means] = pair;
  if (S_ISLNK(now.st_mode) && S_ISLNK(item.attributes.st_mode)) {
    return compare_links(pair);
  }
  if (!S_ISREG(now.st_mode) || !S_ISREG(item.attributes.st_mode) ||
      !has_stamp(now, item.attributes) || !same_mode(now, item, with.to_origin)) {
    return PfsCheck{.version = PfsVersion::other};
  }
  return compare_files(pair);
}

WhoseCopy whose_copy(const VersionPair& pair) {
  const auto& item = pair.item;
  if (pair.with.placed == nullptr) {
    return WhoseCopy::unknown;
  }
  const std::string own = pair.means.buffer.own_path(item.path);
  return pair.with.placed->look({.name = item.path, .own = own}, pair.now,
                                item.pfs.origin || item.pfs.replaced);
}

/// True if the name, of which the log has no record, has the imported or exported version.
Result<bool> is_origin_by_inode(const VersionPair& pair) {
  if (is_origin(pair.now, pair.item)) {
    return true;
  }
  if (!S_ISLNK(pair.now.st_mode)) {
    return false;
  }
  const auto target = pair.means.pfs.readlink(pair.with.directory, pair.with.name);
  if (!target) {
    return with_context(target.error(), comparing_versions);
  }
  return is_target_of_origin(*target, pair.item);
}

Result<PfsCheck> check_there(const VersionPair& pair) {
  const WhoseCopy whose = whose_copy(pair);
  if (whose == WhoseCopy::of_another_path) {
    return PfsCheck{.version = PfsVersion::of_another_path};
  }
  if (pair.with.to_origin && whose == WhoseCopy::ours) {
    return PfsCheck{};
  }
  if (pair.with.to_origin && is_unknown(whose)) {
    const auto is_it = is_origin_by_inode(pair);
    if (!is_it) {
      return std::unexpected(is_it.error());
    }
    if (*is_it) {
      return PfsCheck{};
    }
  }
  auto check = compare_versions(pair);
  if (check) {
    check->whose = whose;
  }
  return check;
}

}  // namespace

Result<PfsCheck> check_version(const fs::WalkItem& item, const Comparand& with,
                               const VersionMeans& means) {
  auto now = means.pfs.lstat(with.directory, with.name);
  // Removed there since: exporting it again loses nothing.
  if (!now && now.error().code == ENOENT) {
    return PfsCheck{};
  }
  if (!now) {
    return with_context(now.error(), comparing_versions);
  }
  auto check = check_there({.item = item, .with = with, .now = *now, .means = means});
  if (check) {
    check->exists = true, check->seen = *now;
  }
  return check;
}

}  // namespace efs::stage
