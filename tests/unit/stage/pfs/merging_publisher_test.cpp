// SPDX-License-Identifier: BSD-3-Clause
// The files that one of several nodes may replace and remove in a directory of all.
#include "stage/pfs/merging_publisher.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "stage/pfs/merge.hpp"
#include "stage/pfs/posix_handle.hpp"
#include "stage/versions/copy_version.hpp"
#include "support/short_of_memory.hpp"
#include "unit/stage/pfs/merge_scene.hpp"
#include "unit/stage/pfs/published.hpp"

namespace efs::stage {
namespace {

TEST_CASE(
    "what this node has brought out is its own to replace, also for a successor, until somebody "
    "touches it",
    "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("p", "first");
  REQUIRE(published(*merging_publisher(*now), scene.at, "p", "out"));
  struct stat st{};
  REQUIRE(::fstatat(fd_of(scene.at), "out", &st, 0) == 0);
  const fs::Origin ours{.device = st.st_dev,
                        .inode = st.st_ino,
                        .size = 5,
                        .mtime = to_ns(st.st_mtim),
                        .ctime = to_ns(st.st_ctim)};
  scene.write("p", "second");
  CHECK_FALSE(published(*merging_publisher(*now), scene.at, "p", "out"));
  CHECK(published(*merging_publisher(*now, std::span(&ours, 1)), scene.at, "p", "out"));
  CHECK(scene.read("out") == "second");
  // Another file has the name now.
  scene.write("p", "third");
  CHECK_FALSE(published(*merging_publisher(*now, std::span(&ours, 1)), scene.at, "p", "out"));
}

TEST_CASE("a file that stands for two nodes is neither's own to replace or to remove", "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  const PfsRef at = scene.at;
  const auto first = merging_publisher(*now), second = merging_publisher(*now);
  const auto stat_of = [&](const std::string& name) {
    struct stat st{};
    REQUIRE(::fstatat(fd_of(at), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0);
    return st;
  };
  const auto bring = [&](Publisher& node, const std::string& text, const std::string& name) {
    scene.write("p", text);
    return published(node, at, "p", name);
  };
  REQUIRE(bring(*first, "same", "out"));
  const auto alone = stat_of("out");
  CHECK_FALSE(first->is_shared(posix_pfs(), at, "out", alone));
  CHECK(second->is_shared(posix_pfs(), at, "out", alone));
  CHECK(copy_version(posix_pfs(), *first, at, "out", alone).ctime == to_ns(alone.st_ctim));
  REQUIRE(bring(*second, "same", "out"));
  const auto both = stat_of("out");
  CHECK(first->is_shared(posix_pfs(), at, "out", both));
  CHECK(second->is_shared(posix_pfs(), at, "out", both));
  CHECK(copy_version(posix_pfs(), *second, at, "out", both).ctime == 0);
  for (auto* node : {first.get(), second.get()}) {
    const auto conflict = bring(*node, "else", "out");
    REQUIRE_FALSE(conflict);
    CHECK(conflict.error().code == EEXIST);
    CHECK(scene.read("out") == "same");
  }
  // The first node does not remove the file that it saw before, and neither does its next process.
  CHECK(first->remove(posix_pfs(), {.at = at, .name = "out", .seen = alone, .claimant = "r"})
            .error()
            .code == EEXIST);
  const auto copy = copy_version(posix_pfs(), *second, at, "out", both);
  CHECK_FALSE(bring(*merging_publisher(*now, std::span(&copy, 1)), "else", "out"));
  // A third node with the same content succeeds. Another name for the shared file does not make it
  // any node's own.
  CHECK(bring(*merging_publisher(*now), "same", "out"));
  REQUIRE(bring(*second, "same", "out"));
  REQUIRE(::linkat(fd_of(at), "out", fd_of(at), "p", 0) == 0);
  REQUIRE(published(*second, at, "p", "name"));
  CHECK(second->is_shared(posix_pfs(), at, "out", stat_of("out")));
  // Links have no content but their target.
  for (auto* node : {first.get(), second.get()}) {
    std::filesystem::create_symlink("here", scene.directory.path() + "/p");
    REQUIRE(published(*node, at, "p", "link"));
  }
  std::filesystem::create_symlink("there", scene.directory.path() + "/p");
  CHECK_FALSE(published(*first, at, "p", "link"));
}

/// A file of this text and time in the place of the one that `gone` was, with its number; false
/// where the file system gives it to none.
bool makes_with_number(const MergeScene& scene, const std::string& name, const std::string& text,
                       const struct stat& gone) {
  std::vector<std::string> in_between;
  bool made = false;
  for (int i = 0; i < 1000 && !made; ++i) {
    const std::string path = "n" + std::to_string(i);
    scene.write(path, text);
    struct stat st{};
    made = ::fstatat(fd_of(scene.at), path.c_str(), &st, 0) == 0 && st.st_ino == gone.st_ino;
    if (!made) {
      in_between.push_back(path);
    } else {
      REQUIRE(::renameat(fd_of(scene.at), path.c_str(), fd_of(scene.at), name.c_str()) == 0);
    }
  }
  for (const auto& path : in_between) {
    std::filesystem::remove(scene.directory.path() + "/" + path);
  }
  const std::array times{gone.st_atim, gone.st_mtim};
  if (made) {
    REQUIRE(::utimensat(fd_of(scene.at), name.c_str(), times.data(), 0) == 0);
  }
  return made;
}

TEST_CASE(
    "another node's file with the number, size and time of one that this node had there is not "
    "this node's",
    "[merge]") {
  const MergeScene scene;
  const PfsRef at = scene.at;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  const auto node = merging_publisher(*now);
  const auto bring = [&](const std::string& text, const std::string& name) {
    scene.write("p", text);
    return published(*node, at, "p", name);
  };
  const auto stat_of = [&](const std::string& name) {
    struct stat st{};
    REQUIRE(::fstatat(fd_of(at), name.c_str(), &st, 0) == 0);
    return st;
  };
  for (const bool replaced : {true, false}) {
    REQUIRE(bring("first", "out"));
    const auto first = stat_of("out");
    const auto copy = copy_version(posix_pfs(), *node, at, "out", first);
    CHECK(copy.ctime == to_ns(first.st_ctim));
    for (struct stat clock = first; to_ns(clock.st_ctim) == to_ns(first.st_ctim);
         clock = stat_of("clock")) {
      scene.write("clock", "");
    }
    if (replaced) {
      REQUIRE(bring("second", "out"));
    } else {
      REQUIRE(::unlinkat(fd_of(at), "out", 0) == 0);
    }
    const std::string name = replaced ? "another" : "out";
    if (!makes_with_number(scene, name, "other", first)) {
      SKIP("the file system of " << scene.directory.path() << " does not use a number again");
    }
    const auto other = stat_of(name);
    REQUIRE((other.st_ino == first.st_ino && other.st_size == first.st_size &&
             to_ns(other.st_mtim) == to_ns(first.st_mtim)));
    CHECK(node->is_shared(posix_pfs(), at, name, other));
    CHECK(merging_publisher(*now, std::span(&copy, 1))->is_shared(posix_pfs(), at, name, other));
    CHECK_FALSE(bring("third", name));
    CHECK(scene.read(name) == "other");
    std::filesystem::remove(scene.directory.path() + "/" + name);
    std::filesystem::remove(scene.directory.path() + "/out");
  }
}

std::ptrdiff_t descriptors_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator{});
}

TEST_CASE("an old file of several names is old under each of them, until somebody touches it",
          "[merge]") {
  const MergeScene scene;
  const PfsRef at = scene.at;
  for (const std::string name : {"r", "t"}) {
    scene.write(name + "1", "old");
    REQUIRE(::linkat(fd_of(at), (name + "1").c_str(), fd_of(at), (name + "2").c_str(), 0) == 0);
  }
  struct stat there{};
  REQUIRE(::fstatat(fd_of(at), "t1", &there, 0) == 0);
  Nanoseconds since = 0;
  while (since <= to_ns(there.st_ctim)) {
    since = pfs_now(scene.directory.path()).value();
  }
  const auto node = merging_publisher(since);
  for (const char* partial : {"p1", "p2", "p3"}) {
    scene.write(partial, partial);
  }
  CHECK(published(*node, at, "p1", "r1"));
  CHECK(published(*node, at, "p2", "r2"));
  CHECK(scene.read("r2") == "p2");
  CHECK(node->remove(posix_pfs(), {.at = at, .name = "t1", .seen = there, .claimant = "r"}));
  // another node cannot know the origin of the change
  CHECK_FALSE(published(*merging_publisher(since), at, "p3", "t2"));
  scene.write("t2", "somebody's");
  CHECK_FALSE(published(*node, at, "p3", "t2"));
  CHECK(scene.read("t2") == "somebody's");
}

// The existing file when a node exports "ours".
enum class InTheWay : std::uint8_t { nothing, old, same, another };

TEST_CASE("merging: every allocation of memory fails once, and for good",
          "[merge][faults][memory]") {
  for (const auto shortage : {efs::test::Shortage::once, efs::test::Shortage::for_good}) {
    for (const auto in_the_way :
         {InTheWay::nothing, InTheWay::old, InTheWay::same, InTheWay::another}) {
      INFO("in the way: " << static_cast<int>(in_the_way));
      const auto allocations =
          efs::test::each_allocation_fails(shortage, [&](const auto& short_of_memory) {
            const MergeScene scene;
            const std::string before = in_the_way == InTheWay::same ? "ours" : "another's";
            if (in_the_way != InTheWay::nothing) {
              scene.write("out", before);
            }
            const auto node =
                merging_publisher(in_the_way == InTheWay::old ? wall_clock() + 1'000'000'000 : 0);
            scene.write("p", "ours");
            const auto all = descriptors_of_process();
            bool done = false;
            short_of_memory([&] {
              try {
                done = published(*node, scene.at, "p", "out").has_value();
              } catch (const std::bad_alloc&) {
              }
            });
            REQUIRE(descriptors_of_process() == all);
            const bool moved = !scene.exists("p");
            REQUIRE((!done || moved));
            if (in_the_way == InTheWay::another) {
              REQUIRE_FALSE(moved);
            }
            if (moved) {
              REQUIRE(scene.read("out") == "ours");
            } else {
              REQUIRE((scene.read("p") == "ours" &&
                       scene.read("out") == (in_the_way == InTheWay::nothing ? "" : before)));
            }
            // A second stage-out exports the same again.
            scene.write("p", "ours");
            REQUIRE(published(*node, scene.at, "p", "out").has_value() ==
                    (in_the_way != InTheWay::another));
            REQUIRE(scene.read("out") == (in_the_way == InTheWay::another ? before : "ours"));
          });
      CHECK(allocations > 1);
    }
  }
}

}  // namespace
}  // namespace efs::stage
