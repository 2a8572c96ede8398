// SPDX-License-Identifier: BSD-3-Clause
#include "stage/versions/directory_version.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "base/checksum.hpp"
#include "fs/acl.hpp"

namespace efs::stage {

Result<DirectoryAttributes> attributes_of(PfsIo& pfs, PfsRef at) {
  const auto now = pfs.fstat(at);
  auto xattrs = now ? pfs.xattrs(at) : std::unexpected(now.error());
  if (!xattrs) {
    return std::unexpected(xattrs.error());
  }
  return DirectoryAttributes{.mode = now->st_mode & 07777U,
                             .uid = now->st_uid,
                             .gid = now->st_gid,
                             .xattrs = std::move(*xattrs)};
}

namespace {

using Xattrs = std::map<std::string, std::string>;

constexpr mode_t permissions = 0777, of_owner = 0700, of_group = 070;

// only root can read them, and a salvage may run as another user
bool is_roots(const std::string& name) {
  return name.starts_with("trusted.");
}

void add_number(Checksum& sum, std::uint64_t number) {
  sum.update(std::as_bytes(std::span(&number, 1)));
}

void add_text(Checksum& sum, const std::string& text) {
  add_number(sum, text.size());
  sum.update(std::as_bytes(std::span(text)));
}

void add_xattrs(Checksum& sum, const Xattrs& xattrs) {
  for (const auto& [name, value] : xattrs) {
    if (is_roots(name)) {
      continue;
    }
    add_text(sum, name);
    add_text(sum, value);
  }
}

/// True if all attributes of `theirs` that count are in `ours` too.
bool are_among(const Xattrs& theirs, const Xattrs& ours) {
  return std::ranges::all_of(theirs, [&](const auto& one) {
    if (is_roots(one.first)) {
      return true;
    }
    const auto own = ours.find(one.first);
    return own != ours.end() && own->second == one.second;
  });
}

}  // namespace

std::uint64_t directory_version(const DirectoryAttributes& attributes) {
  Checksum sum;
  add_number(sum, attributes.mode & 07777U);
  add_number(sum, attributes.uid);
  add_number(sum, attributes.gid);
  add_xattrs(sum, attributes.xattrs);
  return std::max<std::uint64_t>(sum.digest(), 1);
}

DirectoryShape shape_of(const DirectoryAttributes& attributes) {
  Checksum sum;
  add_xattrs(sum, attributes.xattrs);
  return {.mode = attributes.mode,
          .uid = attributes.uid,
          .gid = attributes.gid,
          .xattrs = sum.digest()};
}

// A group that this user cannot set, or the set-group-ID bit that depends on it, does not count as
// another user's change.
bool is_between(const std::optional<DirectoryShape>& was, const DirectoryAttributes& ours,
                const DirectoryAttributes& theirs) {
  if (!was) {
    return (theirs.mode & permissions & ~(ours.mode | of_owner)) == 0;
  }
  const DirectoryShape there = shape_of(theirs);
  const bool has_acl =
      ours.xattrs.contains(fs::access_acl_name) || theirs.xattrs.contains(fs::access_acl_name);
  // an ACL sets the group bits to its mask
  const mode_t compared = has_acl ? permissions & ~of_group : permissions;
  const auto is_mode = [&](mode_t mode) {
    return ((there.mode ^ mode) & compared) == 0;
  };
  const bool has_xattrs = there.xattrs == was->xattrs || are_among(theirs.xattrs, ours.xattrs);
  return has_xattrs && (is_mode(was->mode) || is_mode(ours.mode)) &&
         (there.uid == was->uid || there.uid == ours.uid) &&
         (there.gid == was->gid || there.gid == ours.gid);
}

DirectoryMerge merge_directory(std::optional<std::uint64_t> known, std::uint64_t ours,
                               std::uint64_t theirs) {
  if (theirs == ours) {
    return DirectoryMerge::same;
  }
  if (known == theirs) {
    return DirectoryMerge::take_ours;
  }
  return !known || known == ours ? DirectoryMerge::keep_theirs : DirectoryMerge::conflict;
}

}  // namespace efs::stage
