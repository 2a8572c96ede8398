// SPDX-License-Identifier: BSD-3-Clause
// Merges three versions of a directory's attributes: the imported ones, the job's, and the present
// ones on the PFS.
#include "stage/versions/directory_version.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

using namespace efs;
using namespace efs::stage;

TEST_CASE("a directory's version is another one where any of its attributes is", "[stage]") {
  const DirectoryAttributes one{
      .mode = 0755, .uid = 1, .gid = 2, .xattrs = {{"user.a", "x"}, {"user.b", ""}}};
  std::set<std::uint64_t> versions{directory_version(one)};
  auto other = one;
  other.mode = 02755, versions.insert(directory_version(other));
  other = one, other.uid = 2, versions.insert(directory_version(other));
  other = one, other.gid = 1, versions.insert(directory_version(other));
  other = one, other.xattrs.erase("user.b"), versions.insert(directory_version(other));
  other = one, other.xattrs["user.a"] = "y", versions.insert(directory_version(other));
  other = one, other.xattrs = {{"user.a", "xuser.b"}}, versions.insert(directory_version(other));
  CHECK(versions.size() == 7);
  other = one, other.xattrs["trusted.x"] = "seen by root", other.mode |= S_IFDIR;
  CHECK(directory_version(other) == directory_version(one));
  CHECK_FALSE(versions.contains(0));
}

TEST_CASE(
    "of versions of a directory one's change is taken, two are a conflict, and where nothing is "
    "known what is there stays",
    "[stage]") {
  CHECK(merge_directory(1, 2, 1) == DirectoryMerge::take_ours);
  CHECK(merge_directory(1, 1, 1) == DirectoryMerge::same);
  CHECK(merge_directory(1, 2, 2) == DirectoryMerge::same);
  CHECK(merge_directory({}, 2, 2) == DirectoryMerge::same);
  CHECK(merge_directory(1, 1, 2) == DirectoryMerge::keep_theirs);
  CHECK(merge_directory({}, 2, 3) == DirectoryMerge::keep_theirs);
  CHECK(merge_directory(1, 2, 3) == DirectoryMerge::conflict);
}

TEST_CASE("directory: what a cut-off change may have left is told from what somebody made of it",
          "[stage]") {
  const DirectoryAttributes before{.mode = 0755, .uid = 1, .gid = 2, .xattrs = {{"user.a", "old"}}},
      ours{.mode = 0750, .uid = 3, .gid = 4, .xattrs = {{"user.a", "new"}, {"user.b", "new"}}};
  const auto was = shape_of(before);
  const auto is = [&](DirectoryAttributes theirs) {
    return is_between(was, ours, theirs);
  };
  CHECK(is(before));
  CHECK(is(ours));
  CHECK(is({.mode = 0755, .uid = 3, .gid = 4, .xattrs = before.xattrs}));
  CHECK(is({.mode = 0755, .uid = 3, .gid = 4, .xattrs = {{"user.a", "new"}}}));
  CHECK(is({.mode = 02750, .uid = 1, .gid = 4, .xattrs = ours.xattrs}));
  CHECK_FALSE(is({.mode = 0711, .uid = 3, .gid = 4, .xattrs = ours.xattrs}));
  CHECK_FALSE(is({.mode = 0750, .uid = 5, .gid = 4, .xattrs = ours.xattrs}));
  CHECK_FALSE(is({.mode = 0750, .uid = 3, .gid = 5, .xattrs = ours.xattrs}));
  CHECK_FALSE(is({.mode = 0750, .uid = 3, .gid = 4, .xattrs = {{"user.a", "theirs"}}}));
  CHECK_FALSE(is({.mode = 0750, .uid = 3, .gid = 4, .xattrs = {{"user.c", "theirs"}}}));
  // as made, under a umask
  CHECK(is_between(std::nullopt, ours, {.mode = 0710, .uid = 9, .gid = 9, .xattrs = {}}));
  CHECK_FALSE(is_between(std::nullopt, ours, {.mode = 0751, .uid = 3, .gid = 4, .xattrs = {}}));
}
