// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/deep_paths.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>

#include "stage/pfs/forwarding_pfs.hpp"
#include "unit/stage/opened.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

/// Counts the names that the kernel looks up for paths.
class CountingPfs final : public ForwardingPfs {
 public:
  CountingPfs() : ForwardingPfs(posix_pfs()) {}

  Result<PfsHandle> open_beneath(PfsRef root, const std::string& path, int flags,
                                 mode_t mode) override {
    looked_up += static_cast<std::uint64_t>(std::ranges::count(path, '/')) + 1;
    return ForwardingPfs::open_beneath(root, path, flags, mode);
  }

  std::atomic<std::uint64_t> looked_up{0};
};

std::string chain(std::size_t depth) {
  std::string path = "d";
  for (std::size_t i = 1; i < depth; ++i) {
    path += "/d";
  }
  return path;
}

struct LookedUp {
  std::uint64_t plan = 0, in = 0, out = 0;
};

/// The look-ups for a chain of directories with a file at its end that is imported, changed and
/// exported.
LookedUp looked_up_of_chain(std::size_t depth) {
  Scene scene;
  const std::string path = chain(depth);
  write_file(scene.root + "/" + path + "/file", "content");
  scene.resource("d");
  CountingPfs pfs;
  LookedUp counts;
  Progress progress;
  const Plan plan = make_plan(scene.config, pfs).value();
  REQUIRE(plan.inodes == depth + 1);
  counts.plan = pfs.looked_up.exchange(0);
  REQUIRE(stage_in(plan, scene.buffer, pfs, scene.options, progress).ok());
  counts.in = pfs.looked_up.exchange(0);
  for (auto& [name, node] : scene.buffer.nodes) {
    node.dirty = true;
  }
  const Receipt receipt = scene.out(pfs);
  REQUIRE(receipt.verdict == Verdict::complete);
  REQUIRE(content_of(scene.results + "/" + path + "/file") == "content");
  counts.out = pfs.looked_up;
  return counts;
}

}  // namespace

TEST_CASE(
    "deep paths: plan, stage-in and stage-out look up names in proportion to the depth of a tree",
    "[stage][deep]") {
  const LookedUp once = looked_up_of_chain(300), twice = looked_up_of_chain(600);
  INFO(once.plan << " " << once.in << " " << once.out << ", " << twice.plan << " " << twice.in
                 << " " << twice.out);
  CHECK(twice.plan < once.plan * 5 / 2);
  CHECK(twice.in < once.in * 5 / 2);
  CHECK(twice.out < once.out * 5 / 2);
}

TEST_CASE("deep paths: a path leads to what it names, whichever were opened before",
          "[stage][deep]") {
  Scene scene;
  const std::string deep = chain(60);
  write_file(scene.root + "/" + deep + "/a/file", "1");
  write_file(scene.root + "/" + deep + "/ab/file", "2");
  const PfsHandle root = opened(scene.root);
  DeepPaths paths(posix_pfs(), root);
  for (const char* name : {"/a/file", "/ab/file", "/a", "/ab", "/a/file", ""}) {
    const auto file = paths.open(deep + name, O_RDONLY);
    REQUIRE(file);
    CHECK(posix_pfs().fstat(*file)->st_ino == stat_of(scene.root + "/" + deep + name).st_ino);
  }
  CHECK(paths.open(deep + "/none", O_RDONLY).error().code == ENOENT);
  CHECK(paths.open(deep + "/none/file", O_RDONLY).error().code == ENOENT);
  CHECK(paths.open(deep + "/a/../ab", O_RDONLY).error().code == EXDEV);
  stdfs::create_directory_symlink("ab", scene.root + "/" + deep + "/link");
  CHECK_FALSE(paths.open(deep + "/link/file", O_RDONLY));
  CHECK(paths.open("d", O_RDONLY));
}

TEST_CASE("deep paths: no more directories stay open than are meant to", "[stage][deep]") {
  Scene scene;
  const std::string deep = chain(40);
  for (std::size_t i = 0; i < 3 * DeepPaths::most_open; ++i) {
    write_file(scene.root + "/" + deep + "/" + std::to_string(i) + "/file", "1");
  }
  const auto open_files = [] {
    return std::distance(stdfs::directory_iterator("/proc/self/fd"), stdfs::directory_iterator());
  };
  const PfsHandle root = opened(scene.root);
  const auto before = open_files();
  {
    DeepPaths paths(posix_pfs(), root);
    for (std::size_t i = 0; i < 3 * DeepPaths::most_open; ++i) {
      REQUIRE(paths.open(deep + "/" + std::to_string(i) + "/file", O_RDONLY));
    }
    CHECK(open_files() <= before + static_cast<std::ptrdiff_t>(DeepPaths::most_open));
  }
  CHECK(open_files() == before);
}
