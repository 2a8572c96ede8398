// SPDX-License-Identifier: BSD-3-Clause
// Results of several nodes in one directory.
#include "stage/pfs/merge.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <utility>

#include "stage/pfs/forwarding_pfs.hpp"
#include "stage/pfs/merging_pfs.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"
#include "support/failing_calls.hpp"
#include "support/short_of_memory.hpp"
#include "unit/stage/pfs/merge_scene.hpp"

namespace efs::stage {
namespace {

using efs::test::FailingCall;
using efs::test::with_calls_failing;

TEST_CASE("a name that nobody has is given", "[merge]") {
  const MergeScene scene;
  scene.write("p", "ours");
  REQUIRE(rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, 0));
  CHECK(scene.read("out") == "ours");
  CHECK_FALSE(scene.exists("p"));
}

TEST_CASE("what was there before the job is replaced", "[merge]") {
  const MergeScene scene;
  scene.write("out", "old");
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("p", "ours");
  REQUIRE(rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, *now + 1'000'000'000));
  CHECK(scene.read("out") == "ours");
  CHECK_FALSE(scene.exists("p"));
}

TEST_CASE("who reads an old file under a lock holds nobody up", "[merge]") {
  const MergeScene scene;
  scene.write("out", "old");
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  const UniqueFd reader(::openat(scene.fd.get(), "out", O_RDONLY | O_CLOEXEC));
  REQUIRE(::flock(reader.get(), LOCK_SH) == 0);
  scene.write("p", "ours");
  REQUIRE(rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, *now + 1'000'000'000));
  CHECK(scene.read("out") == "ours");
}

TEST_CASE("another node's file is never replaced; the same content is no conflict", "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("out", "theirs");
  scene.write("p", "theirs");
  CHECK(rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, *now));
  CHECK_FALSE(scene.exists("p"));
  // A user without read access to one version must not get read access to the other.
  scene.write("p", "theirs");
  REQUIRE(::fchmodat(scene.fd.get(), "p", 0600, 0) == 0);
  CHECK(rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, *now).error().code == EEXIST);
  scene.write("p", "ours!!");
  const auto conflict = rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, *now);
  REQUIRE_FALSE(conflict);
  CHECK(conflict.error().code == EEXIST);
  CHECK(conflict.error().what.contains("another node"));
  CHECK(scene.read("out") == "theirs");
  CHECK(scene.read("p") == "ours!!");
  // A link is not a file, and links are the same if they lead to the same place.
  std::filesystem::create_symlink("here", scene.directory.path() + "/l1");
  std::filesystem::create_symlink("here", scene.directory.path() + "/l2");
  CHECK_FALSE(rename_merging(posix_pfs(), {scene.fd.get(), "l1", "out"}, *now));
  CHECK(rename_merging(posix_pfs(), {scene.fd.get(), "l1", "l2"}, *now));
}

TEST_CASE(
    "what this node has brought out is its own to replace, also for a successor, until somebody "
    "touches it",
    "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("p", "first");
  REQUIRE(merging_pfs(*now)->rename(scene.fd.get(), "p", "out"));
  struct stat st{};
  REQUIRE(::fstatat(scene.fd.get(), "out", &st, 0) == 0);
  const fs::Origin ours{.device = st.st_dev,
                        .inode = st.st_ino,
                        .size = 5,
                        .mtime = to_ns(st.st_mtim),
                        .ctime = to_ns(st.st_ctim)};
  scene.write("p", "second");
  CHECK_FALSE(merging_pfs(*now)->rename(scene.fd.get(), "p", "out"));
  CHECK(merging_pfs(*now, std::span(&ours, 1))->rename(scene.fd.get(), "p", "out"));
  CHECK(scene.read("out") == "second");
  // Another file has the name now.
  scene.write("p", "third");
  CHECK_FALSE(merging_pfs(*now, std::span(&ours, 1))->rename(scene.fd.get(), "p", "out"));
}

TEST_CASE("a file that stands for two nodes is neither's own to replace or to remove", "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  const int at = scene.fd.get();
  const auto first = merging_pfs(*now), second = merging_pfs(*now);
  const auto stat_of = [&](const std::string& name) {
    struct stat st{};
    REQUIRE(::fstatat(at, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0);
    return st;
  };
  const auto bring = [&](PfsIo& node, const std::string& text, const std::string& name) {
    scene.write("p", text);
    return node.rename(at, "p", name);
  };
  REQUIRE(bring(*first, "same", "out"));
  const auto alone = stat_of("out");
  CHECK_FALSE(first->is_shared(at, "out", alone));
  CHECK(second->is_shared(at, "out", alone));
  CHECK(copy_version(*first, at, "out", alone).ctime == to_ns(alone.st_ctim));
  REQUIRE(bring(*second, "same", "out"));
  const auto both = stat_of("out");
  CHECK(first->is_shared(at, "out", both));
  CHECK(second->is_shared(at, "out", both));
  CHECK(copy_version(*second, at, "out", both).ctime == 0);
  for (auto* node : {first.get(), second.get()}) {
    const auto conflict = bring(*node, "else", "out");
    REQUIRE_FALSE(conflict);
    CHECK(conflict.error().code == EEXIST);
    CHECK(scene.read("out") == "same");
  }
  // The first node does not remove the file that it saw before, and neither does its next process.
  CHECK(first->remove(at, "out", alone, "r").error().code == EEXIST);
  const auto copy = copy_version(*second, at, "out", both);
  CHECK_FALSE(bring(*merging_pfs(*now, std::span(&copy, 1)), "else", "out"));
  // A third node with the same content succeeds. Another name for the shared file does not make it
  // any node's own.
  CHECK(bring(*merging_pfs(*now), "same", "out"));
  REQUIRE(bring(*second, "same", "out"));
  REQUIRE(::linkat(at, "out", at, "p", 0) == 0);
  REQUIRE(second->rename(at, "p", "name"));
  CHECK(second->is_shared(at, "out", stat_of("out")));
  // Links have no content but their target.
  for (auto* node : {first.get(), second.get()}) {
    std::filesystem::create_symlink("here", scene.directory.path() + "/p");
    REQUIRE(node->rename(at, "p", "link"));
  }
  std::filesystem::create_symlink("there", scene.directory.path() + "/p");
  CHECK_FALSE(first->rename(at, "p", "link"));
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
    made = ::fstatat(scene.fd.get(), path.c_str(), &st, 0) == 0 && st.st_ino == gone.st_ino;
    if (!made) {
      in_between.push_back(path);
    } else {
      REQUIRE(::renameat(scene.fd.get(), path.c_str(), scene.fd.get(), name.c_str()) == 0);
    }
  }
  for (const auto& path : in_between) {
    std::filesystem::remove(scene.directory.path() + "/" + path);
  }
  const std::array times{gone.st_atim, gone.st_mtim};
  if (made) {
    REQUIRE(::utimensat(scene.fd.get(), name.c_str(), times.data(), 0) == 0);
  }
  return made;
}

TEST_CASE(
    "another node's file with the number, size and time of one that this node had there is not "
    "this node's",
    "[merge]") {
  const MergeScene scene;
  const int at = scene.fd.get();
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  const auto node = merging_pfs(*now);
  const auto bring = [&](const std::string& text, const std::string& name) {
    scene.write("p", text);
    return node->rename(at, "p", name);
  };
  const auto stat_of = [&](const std::string& name) {
    struct stat st{};
    REQUIRE(::fstatat(at, name.c_str(), &st, 0) == 0);
    return st;
  };
  for (const bool replaced : {true, false}) {
    REQUIRE(bring("first", "out"));
    const auto first = stat_of("out");
    const auto copy = copy_version(*node, at, "out", first);
    CHECK(copy.ctime == to_ns(first.st_ctim));
    for (struct stat clock = first; to_ns(clock.st_ctim) == to_ns(first.st_ctim);
         clock = stat_of("clock")) {
      scene.write("clock", "");
    }
    if (replaced) {
      REQUIRE(bring("second", "out"));
    } else {
      REQUIRE(::unlinkat(at, "out", 0) == 0);
    }
    const std::string name = replaced ? "another" : "out";
    if (!makes_with_number(scene, name, "other", first)) {
      SKIP("the file system of " << scene.directory.path() << " does not use a number again");
    }
    const auto other = stat_of(name);
    REQUIRE((other.st_ino == first.st_ino && other.st_size == first.st_size &&
             to_ns(other.st_mtim) == to_ns(first.st_mtim)));
    CHECK(node->is_shared(at, name, other));
    CHECK(merging_pfs(*now, std::span(&copy, 1))->is_shared(at, name, other));
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

TEST_CASE("what is a node's own is that file alone, not another one of the same time", "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("out", "own");
  struct stat own{};
  REQUIRE(::fstatat(scene.fd.get(), "out", &own, 0) == 0);
  scene.write("p", "next");
  for (const bool other : {true, false}) {
    struct stat seen = own;
    if (other) {
      ++seen.st_ino;
    }
    const auto renamed = rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, *now, &seen);
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
  REQUIRE(::linkat(scene.fd.get(), "out", scene.fd.get(), "other", 0) == 0);
  struct stat seen{};
  REQUIRE(::fstatat(scene.fd.get(), "out", &seen, 0) == 0);
  REQUIRE(::unlinkat(scene.fd.get(), "other", 0) == 0);
  scene.write("p", "next");
  CHECK(rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, *now, &seen));
  CHECK(scene.read("out") == "next");
}

TEST_CASE("an old file of several names is old under each of them, until somebody touches it",
          "[merge]") {
  const MergeScene scene;
  const int at = scene.fd.get();
  for (const std::string name : {"r", "t"}) {
    scene.write(name + "1", "old");
    REQUIRE(::linkat(at, (name + "1").c_str(), at, (name + "2").c_str(), 0) == 0);
  }
  struct stat there{};
  REQUIRE(::fstatat(at, "t1", &there, 0) == 0);
  Nanoseconds since = 0;
  while (since <= to_ns(there.st_ctim)) {
    since = pfs_now(scene.directory.path()).value();
  }
  const auto pfs = merging_pfs(since, {});
  for (const char* partial : {"p1", "p2", "p3"}) {
    scene.write(partial, partial);
  }
  CHECK(pfs->rename(at, "p1", "r1"));
  CHECK(pfs->rename(at, "p2", "r2"));
  CHECK(scene.read("r2") == "p2");
  CHECK(pfs->remove(at, "t1", there, "r"));
  // another node cannot know the origin of the change
  CHECK_FALSE(merging_pfs(since, {})->rename(at, "p3", "t2"));
  scene.write("t2", "somebody's");
  CHECK_FALSE(pfs->rename(at, "p3", "t2"));
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
                merging_pfs(in_the_way == InTheWay::old ? wall_clock() + 1'000'000'000 : 0);
            scene.write("p", "ours");
            const auto all = descriptors_of_process();
            bool done = false;
            short_of_memory([&] {
              try {
                done = node->rename(scene.fd.get(), "p", "out").has_value();
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
            REQUIRE(node->rename(scene.fd.get(), "p", "out").has_value() ==
                    (in_the_way != InTheWay::another));
            REQUIRE(scene.read("out") == (in_the_way == InTheWay::another ? before : "ours"));
          });
      CHECK(allocations > 1);
    }
  }
}

TEST_CASE(
    "where a PFS knows no way to give a name that replaces nothing, a link does, or, where there "
    "are none either, a look under a claim",
    "[merge]") {
  constexpr FailingCall no_flags{SYS_renameat2, EINVAL};
  for (const unsigned code : {0, EPERM, EOPNOTSUPP, EIO, ENOSPC, EDQUOT}) {
    const bool has_none = code == EPERM || code == EOPNOTSUPP;
    for (const bool taken : {false, true}) {
      INFO("linkat(2) fails with " << code << ", the name is " << (taken ? "taken" : "free"));
      const MergeScene scene;
      scene.write("p", "ours");
      if (taken) {
        scene.write("out", "theirs");
      }
      Status given;
      with_calls_failing(
          code == 0 ? std::vector{no_flags} : std::vector{no_flags, FailingCall{SYS_linkat, code}},
          [&] { given = posix_pfs().rename_new(scene.fd.get(), "p", "out"); });
      CHECK(given.has_value() == (!taken && (has_none || code == 0)));
      CHECK(scene.read("out") == (given ? "ours" : taken ? "theirs" : ""));
      CHECK(scene.exists("p") == !given);
      if (!given) {
        CHECK(given.error().code == (code == 0 || has_none ? EEXIST : static_cast<int>(code)));
      }
    }
  }
}

TEST_CASE(
    "a partial whose file has the name already, for the answer to the call that gave it was lost, "
    "goes",
    "[merge]") {
  const MergeScene scene;
  scene.write("p", "ours");
  REQUIRE(::linkat(scene.fd.get(), "p", scene.fd.get(), "out", 0) == 0);
  CHECK(rename_merging(posix_pfs(), {scene.fd.get(), "p", "out"}, 0));
  CHECK(scene.read("out") == "ours");
  CHECK_FALSE(scene.exists("p"));
}

}  // namespace
}  // namespace efs::stage
