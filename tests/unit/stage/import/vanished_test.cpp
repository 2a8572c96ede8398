// SPDX-License-Identifier: BSD-3-Clause
// Files of a directory that are taken away, or replaced, between the plan and the copy.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>

#include "base/clock.hpp"

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

struct VanishingScene : Scene {
  VanishingScene() {
    for (const char* name : {"/d/a", "/d/b", "/d/sub/c"}) {
      write_file(root + name, "content");
    }
  }

  void whole(config::Vanished vanished) {
    resource("d");
    config.resources.back().vanished = vanished;
  }

  /// Stages in what was planned, after `meanwhile`.
  StageReport in_after(const std::function<void()>& meanwhile, PfsIo& pfs = posix_pfs()) {
    const Plan planned = plan();
    REQUIRE(planned.problems.empty());
    meanwhile();
    Progress progress;
    auto report = stage_in(planned, buffer, pfs, options, progress);
    CHECK(buffer.pending() == 0);
    if (report.ok()) {
      CHECK(progress.files_done == progress.files_total);
    }
    return report;
  }
};

std::vector<std::string> paths_of(const std::vector<PlanSkip>& skips) {
  std::vector<std::string> paths;
  for (const auto& skip : skips) {
    paths.push_back((skip.vanished ? "" : "!") + skip.path);
  }
  return paths;
}

using Paths = std::vector<std::string>;

/// The survey's call for one name fails as it does when the name has just gone.
Plan plan_without(VanishingScene& scene, const std::string& call, const std::string& object,
                  int error = ENOENT) {
  FaultPfs pfs([&](auto, const std::string& called, const std::string& on) {
    return called == call && on == object ? error : 0;
  });
  return make_plan(scene.config, pfs).value();
}

}  // namespace

TEST_CASE(
    "vanished: what goes while the inputs are listed is an error that names the key, or is left "
    "out",
    "[stage][in][vanished]") {
  VanishingScene scene;
  scene.whole(config::Vanished::fail);
  CHECK(has_problem(plan_without(scene, "lstat", "b"), scene.root + "/d/b",
                    "vanished while the inputs were listed; 'vanished: skip'"));
  scene.config.resources.clear();
  scene.whole(config::Vanished::skip);
  for (const int error : {ENOENT, ESTALE, ENOTDIR, ELOOP}) {
    const Plan plan = plan_without(scene, "lstat", "b", error);
    CHECK(plan.problems.empty());
    CHECK(paths_of(plan.skipped) == Paths{"d/b"});
    CHECK(plan.files == 2);
  }
  const Plan without_directory = plan_without(scene, "open", "d/sub");
  CHECK(without_directory.problems.empty());
  CHECK(paths_of(without_directory.skipped) == Paths{"d/sub"});
  CHECK(without_directory.inodes == 3);
  // the resource itself
  CHECK(
      has_problem(plan_without(scene, "open", "d"), scene.root + "/d", "directory cannot be read"));
  CHECK(plan_without(scene, "lstat", "b", EACCES).problems.size() == 1);
}

TEST_CASE("vanished: a pattern finds, and a resource or a list names", "[stage][in][vanished]") {
  VanishingScene scene;
  scene.resource("d/*");
  scene.config.resources.back().vanished = config::Vanished::skip;
  CHECK(paths_of(plan_without(scene, "lstat", "b").skipped) == Paths{"d/b"});
  scene.resource("d/b");
  scene.config.resources.back().vanished = config::Vanished::skip;
  const auto named = scene.in_after([&] { stdfs::remove(scene.root + "/d/b"); });
  REQUIRE_FALSE(named.ok());
  CHECK(named.failure->path == "d/b");
  CHECK_FALSE(named.failure->error.what.contains("'vanished: skip'"));
}

TEST_CASE(
    "vanished: what goes between plan and copy is an error that names the key, or is left out",
    "[stage][in][vanished]") {
  VanishingScene scene;
  scene.whole(config::Vanished::fail);
  const auto failed = scene.in_after([&] { stdfs::remove(scene.root + "/d/a"); });
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.failure->error.what.contains("vanished since it was planned; 'vanished: skip'"));
  VanishingScene other;
  other.whole(config::Vanished::skip);
  const auto report = other.in_after([&] {
    stdfs::remove(other.root + "/d/a");
    stdfs::remove_all(other.root + "/d/sub");
  });
  REQUIRE(report.ok());
  CHECK(paths_of(report.skipped) == Paths{"d/a", "d/sub", "d/sub/c"});
  CHECK(report.files == 1);
  CHECK(other.buffer.nodes.contains("d/b"));
  CHECK_FALSE(other.buffer.nodes.contains("d/a"));
}

TEST_CASE("vanished: a file that another one replaces is read in its new version",
          "[stage][in][vanished]") {
  VanishingScene scene;
  scene.whole(config::Vanished::skip);
  const auto replace = [&](const std::string& content) {
    write_file(scene.root + "/new", content);
    stdfs::rename(scene.root + "/new", scene.root + "/d/a");
  };
  SECTION("before it is read") {
    const auto report = scene.in_after([&] { replace("of another length"); });
    REQUIRE(report.ok());
    CHECK(report.skipped.empty());
    CHECK(scene.buffered("d/a") == "of another length");
    CHECK(scene.buffer.nodes.at("d/a").origin->inode == stat_of(scene.root + "/d/a").st_ino);
    CHECK(report.bytes == 7 + 7 + 17);
  }
  SECTION("by something that is no file") {
    const auto report = scene.in_after(
        [&] { stdfs::remove(scene.root + "/d/a"), stdfs::create_directory(scene.root + "/d/a"); });
    REQUIRE(report.ok());
    CHECK(paths_of(report.skipped) == Paths{"d/a"});
  }
  SECTION("again and again, which is an error") {
    int version = 0;
    FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
      if (call == "open" && object == "a") {
        write_file(scene.root + "/d/a", std::string(static_cast<std::size_t>(++version), 'x'));
      }
      return 0;
    });
    const auto report = scene.in_after([] {}, pfs);
    REQUIRE_FALSE(report.ok());
    CHECK(report.failure->path == "d/a");
    CHECK(report.failure->error.what.contains("changed while it was being read"));
  }
}

// A kernel keeps times by the ticks of its clock: here of 10 ms.
void write_in_tick(const std::string& path, const std::string& content) {
  constexpr Nanoseconds tick = 10'000'000;
  write_file(path, content);
  const timespec stamp = to_timespec(wall_clock() / tick * tick);
  const std::array<timespec, 2> times{stamp, stamp};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0);
}

TEST_CASE("vanished: a version that changes again within the same tick of the clock is not torn",
          "[stage][in][vanished]") {
  VanishingScene scene;
  stdfs::remove_all(scene.root + "/d/sub");
  stdfs::remove(scene.root + "/d/b");
  scene.whole(config::Vanished::skip);
  const std::string path = scene.root + "/d/a";
  int looks = 0, reads = 0;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "lstat" && object == "a" && ++looks == 1) {
      write_in_tick(path, "old version");
    }
    if (call == "read" && looks == 1 && ++reads == 2) {
      write_in_tick(path, "new version");
    }
    return 0;
  });
  pfs.most = 4;
  const auto report = scene.in_after([&] { write_file(path, "of another length"); }, pfs);
  REQUIRE(report.ok());
  CHECK(reads >= 2);
  CHECK(scene.buffered("d/a") == "new version");
}

TEST_CASE("vanished: the first of several names of a file must be there", "[stage][in][vanished]") {
  VanishingScene scene;
  stdfs::create_hard_link(scene.root + "/d/a", scene.root + "/d/sub/same");
  scene.whole(config::Vanished::skip);
  const auto report = scene.in_after([&] { stdfs::remove(scene.root + "/d/a"); });
  REQUIRE_FALSE(report.ok());
  CHECK(report.failure->path == "d/a");
}

TEST_CASE("vanished: of several resources the strictest counts", "[stage][in][vanished]") {
  VanishingScene scene;
  scene.whole(config::Vanished::skip);
  scene.resource("d/sub");
  CHECK_FALSE(scene.in_after([&] { stdfs::remove(scene.root + "/d/sub/c"); }).ok());
}
