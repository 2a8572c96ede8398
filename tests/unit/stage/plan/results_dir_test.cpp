// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/results_dir.hpp"

#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

TEST_CASE("results-dir may be missing where it can be made, not where it cannot",
          "[stage][results-dir]") {
  Scene scene;
  scene.config.results_dir = scene.top + "/new/deep/out";
  CHECK(scene.plan().problems.empty());
  FaultPfs pfs([](auto, const std::string& call, const std::string&) {
    return call == "access" ? EACCES : 0;
  });
  CHECK(has_problem(make_plan(scene.config, pfs).value(), scene.config.results_dir,
                    "cannot be created"));
  CHECK(!stdfs::exists(scene.top + "/new"));
}

TEST_CASE("results-dir inside root-dir lies beside the inputs, by whatever name",
          "[stage][results-dir]") {
  Scene scene;
  write_file(scene.root + "/input/sub/f", "data");
  write_file(scene.root + "/single/f", "data");
  write_file(scene.root + "/other/f", "data");
  write_file(scene.root + "/results/old", "data");
  stdfs::create_directory_symlink(scene.root, scene.top + "/alias");
  scene.resource("input");
  scene.resource("single/f");
  scene.resource("other/f");
  scene.config.resources.back().as = "elsewhere";
  for (const std::string& top : {scene.root, scene.top + "/alias"}) {
    const auto refused = [&](const std::string& below, const std::string& words) {
      scene.config.results_dir = top + below;
      INFO(scene.config.results_dir);
      CHECK(has_problem(scene.plan(), scene.config.results_dir, words));
    };
    refused("/input", "is inside the input " + scene.root + "/input");
    refused("/input/sub", "is inside the input " + scene.root + "/input");
    refused("/input/still/to be made", "is inside the input " + scene.root + "/input");
    refused("/single", "holds inputs (it is " + scene.root + "/single)");
    refused("/other", "holds inputs (it is " + scene.root + "/other)");
    for (const auto* below : {"/results", "/results/of today", "/single/results"}) {
      scene.config.results_dir = top + below;
      INFO(scene.config.results_dir);
      CHECK(scene.plan().problems.empty());
    }
  }
}

TEST_CASE("results-dir that is root-dir by another name", "[stage][results-dir]") {
  Scene scene;
  write_file(scene.root + "/f", "data");
  scene.resource("f");
  stdfs::create_directory_symlink(scene.root, scene.top + "/alias");
  scene.config.results_dir = scene.top + "/alias";
  CHECK(has_problem(scene.plan(), scene.config.results_dir,
                    "is root-dir " + scene.root + " by another name"));
  stdfs::create_directory_symlink(scene.top, scene.top + "/above");
  for (const auto& above : {scene.top, scene.top + "/above"}) {
    scene.config.results_dir = above;
    CHECK(has_problem(scene.plan(), above, "root-dir " + scene.root + " is inside results-dir"));
  }
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  CHECK(scene.plan().problems.empty());
}

TEST_CASE("results-dir inside root-dir, all of which is an input", "[stage][results-dir]") {
  Scene scene;
  write_file(scene.root + "/f", "data");
  scene.resource("");
  scene.config.results_dir = scene.root + "/to be made";
  CHECK(has_problem(scene.plan(), scene.config.results_dir,
                    "is inside the input " + scene.root + ":"));
}

TEST_CASE(
    "results-dir: the directories that an output rule names have to take results, and each is told "
    "of once",
    "[stage][results-dir]") {
  Scene scene;
  scene.config.results_dir = scene.top + "/results";
  write_file(scene.config.results_dir + "/plain/file", "in the way");
  ::symlink("plain", (scene.config.results_dir + "/link").c_str());
  for (const char* pattern : {"plain/*.out", "plain/file/*.out", "plain/file/x/*.log", "link/*.out",
                              "new/deep/*.out", "*.out"}) {
    scene.config.outputs.push_back(
        {.pattern = pattern, .file_class = config::FileClass::persistent});
  }
  const Plan plan = scene.plan();
  CHECK(plan.problems.size() == 2);
  CHECK(has_problem(plan, scene.config.results_dir + "/plain/file",
                    "takes no result of the output plain/file/*.out: it is not a directory"));
  CHECK(has_problem(plan, scene.config.results_dir + "/link",
                    "takes no result of the output link/*.out"));
}

TEST_CASE("results-dir whose file system is not mounted any more is told", "[stage][results-dir]") {
  Scene scene;
  scene.config.results_dir = scene.top + "/new/deep/out";
  stdfs::create_directory_symlink(scene.top, scene.top + "/alias");
  const auto mount = mount_point_of(scene.config.results_dir, posix_pfs());
  REQUIRE(mount);
  CHECK((*mount == "/" || scene.top.starts_with(*mount + "/")));
  CHECK(mount_point_of(scene.top + "/alias/new", posix_pfs()).value_or("") == *mount);
  CHECK(mount_point_of("/proc/self", posix_pfs()).value_or("") == "/proc");
  CHECK(check_mounted(scene.config, posix_pfs()));  // not known
  const auto check = [&](const std::string& point, PfsIo& pfs) {
    scene.config.results_mount = point;
    return check_mounted(scene.config, pfs);
  };
  CHECK(check(*mount, posix_pfs()));
  for (const std::string& point : {scene.top, scene.top + "/gone"}) {
    const Status unmounted = check(point, posix_pfs());
    REQUIRE_FALSE(unmounted);
    CHECK(unmounted.error().code == ESTALE);
    CHECK(unmounted.error().what.contains("nothing is mounted on " + point));
  }
  CHECK(!stdfs::exists(scene.top + "/new"));
  // After a failed look-up the check reports neither mounted nor unmounted.
  FaultPfs pfs(
      [](auto, const std::string& call, const std::string&) { return call == "statx" ? EIO : 0; });
  CHECK(check(*mount, pfs).error().code == EIO);
}
