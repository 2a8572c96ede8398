// SPDX-License-Identifier: BSD-3-Clause
// Results of several nodes in one directory.
#include "stage/pfs/merge.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "stage/pfs/posix_handle.hpp"
#include "unit/stage/pfs/merge_scene.hpp"

namespace efs::stage {
namespace {

TEST_CASE("a name that nobody has is given", "[merge]") {
  const MergeScene scene;
  scene.write("p", "ours");
  REQUIRE(rename_merging(posix_pfs(), {scene.at, "p", "out"}, 0));
  CHECK(scene.read("out") == "ours");
  CHECK_FALSE(scene.exists("p"));
}

TEST_CASE("what was there before the job is replaced", "[merge]") {
  const MergeScene scene;
  scene.write("out", "old");
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("p", "ours");
  REQUIRE(rename_merging(posix_pfs(), {scene.at, "p", "out"}, *now + 1'000'000'000));
  CHECK(scene.read("out") == "ours");
  CHECK_FALSE(scene.exists("p"));
}

TEST_CASE("who reads an old file under a lock holds nobody up", "[merge]") {
  const MergeScene scene;
  scene.write("out", "old");
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  const UniqueFd reader(::openat(fd_of(scene.at), "out", O_RDONLY | O_CLOEXEC));
  REQUIRE(::flock(reader.get(), LOCK_SH) == 0);
  scene.write("p", "ours");
  REQUIRE(rename_merging(posix_pfs(), {scene.at, "p", "out"}, *now + 1'000'000'000));
  CHECK(scene.read("out") == "ours");
}

TEST_CASE("another node's file is never replaced; the same content is no conflict", "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("out", "theirs");
  scene.write("p", "theirs");
  CHECK(rename_merging(posix_pfs(), {scene.at, "p", "out"}, *now));
  CHECK_FALSE(scene.exists("p"));
  // A user without read access to one version must not get read access to the other.
  scene.write("p", "theirs");
  REQUIRE(::fchmodat(fd_of(scene.at), "p", 0600, 0) == 0);
  CHECK(rename_merging(posix_pfs(), {scene.at, "p", "out"}, *now).error().code == EEXIST);
  scene.write("p", "ours!!");
  const auto conflict = rename_merging(posix_pfs(), {scene.at, "p", "out"}, *now);
  REQUIRE_FALSE(conflict);
  CHECK(conflict.error().code == EEXIST);
  CHECK(conflict.error().what.contains("another node"));
  CHECK(scene.read("out") == "theirs");
  CHECK(scene.read("p") == "ours!!");
  // A link is not a file, and links are the same if they lead to the same place.
  std::filesystem::create_symlink("here", scene.directory.path() + "/l1");
  std::filesystem::create_symlink("here", scene.directory.path() + "/l2");
  CHECK_FALSE(rename_merging(posix_pfs(), {scene.at, "l1", "out"}, *now));
  CHECK(rename_merging(posix_pfs(), {scene.at, "l1", "l2"}, *now));
}

TEST_CASE("what is a node's own is that file alone, not another one of the same time", "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("out", "own");
  struct stat own{};
  REQUIRE(::fstatat(fd_of(scene.at), "out", &own, 0) == 0);
  scene.write("p", "next");
  for (const bool other : {true, false}) {
    struct stat seen = own;
    if (other) {
      ++seen.st_ino;
    }
    const auto renamed = rename_merging(posix_pfs(), {scene.at, "p", "out"}, *now, &seen);
    CHECK(renamed.has_value() != other);
    CHECK(scene.read("out") == (other ? "own" : "next"));
  }
}

TEST_CASE("a node's own file stays its own when another of its names goes after it was seen",
          "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("out", "own");
  REQUIRE(::linkat(fd_of(scene.at), "out", fd_of(scene.at), "other", 0) == 0);
  struct stat seen{};
  REQUIRE(::fstatat(fd_of(scene.at), "out", &seen, 0) == 0);
  REQUIRE(::unlinkat(fd_of(scene.at), "other", 0) == 0);
  scene.write("p", "next");
  CHECK(rename_merging(posix_pfs(), {scene.at, "p", "out"}, *now, &seen));
  CHECK(scene.read("out") == "next");
}

TEST_CASE(
    "a partial whose file has the name already, for the answer to the call that gave it was lost, "
    "goes",
    "[merge]") {
  const MergeScene scene;
  scene.write("p", "ours");
  REQUIRE(::linkat(fd_of(scene.at), "p", fd_of(scene.at), "out", 0) == 0);
  CHECK(rename_merging(posix_pfs(), {scene.at, "p", "out"}, 0));
  CHECK(scene.read("out") == "ours");
  CHECK_FALSE(scene.exists("p"));
}

}  // namespace
}  // namespace efs::stage
