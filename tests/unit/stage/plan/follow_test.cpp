// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/follow.hpp"

#include <catch2/catch_test_macros.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

using Paths = std::vector<std::string>;

struct LinkScene : Scene {
  LinkScene() {
    write_file(root + "/d/file", "inside");
    write_file(top + "/else/deep/file", "outside");
  }

  void link(const std::string& target, const std::string& name) {
    stdfs::create_symlink(target, root + "/" + name);
  }

  void followed(const std::string& path) {
    resource(path);
    config.resources.back().follow = true;
  }
};

Paths paths_of(const Plan& plan) {
  Paths paths;
  for (const auto& entry : plan.entries) {
    paths.push_back(entry.path + (entry.type == EntryType::symlink ? "@" : ""));
  }
  return paths;
}

Paths noted(const Plan& plan) {
  Paths paths;
  for (const auto& link : plan.links) {
    paths.push_back(link.path + ": " + link.reason.substr(0, link.reason.find(" (")));
  }
  return paths;
}

}  // namespace

TEST_CASE("follow: files and directories take the place of the links to them", "[stage][follow]") {
  LinkScene scene;
  scene.link(scene.top + "/else", "d/away");
  scene.link("../d/file", "d/near");
  scene.link("../../else/deep/file", "d/up");
  scene.followed("d");
  scene.config.resources.back().reusable = true;
  const Plan plan = scene.plan();
  CHECK(plan.problems.empty());
  CHECK(paths_of(plan) ==
        Paths{"d", "d/away", "d/away/deep", "d/away/deep/file", "d/file", "d/near", "d/up"});
  CHECK(plan.entries[3].outside == scene.top + "/else/deep/file");
  CHECK(plan.reusable_files == 1);
  CHECK(noted(plan).empty());
  REQUIRE(scene.in().ok());
  CHECK(scene.buffered("d/away/deep/file") == "outside");
  CHECK(scene.buffered("d/near") == "inside");
  CHECK(scene.buffered("d/up") == "outside");
}

TEST_CASE("follow: a resource may be a link, and a pattern may match one", "[stage][follow]") {
  LinkScene scene;
  scene.link(scene.top + "/else", "one");
  scene.link(scene.top + "/else/deep/file", "two");
  scene.followed("one");
  scene.followed("tw*");
  CHECK(paths_of(scene.plan()) == Paths{"one", "one/deep", "one/deep/file", "two"});
  scene.followed("one/deep/file");
  CHECK(
      has_problem(scene.plan(), scene.root + "/one/deep/file", "leads through the symbolic link"));
}

TEST_CASE("follow: circles, links to nothing and what is no file are refused", "[stage][follow]") {
  LinkScene scene;
  scene.followed("d");
  const auto is_refused = [&](const std::string& target, const std::string& words) {
    scene.link(target, "d/link");
    const bool refused = has_problem(scene.plan(), scene.root + "/d/link", words);
    stdfs::remove(scene.root + "/d/link");
    return refused;
  };
  CHECK(is_refused("nowhere", "which does not exist"));
  CHECK(is_refused("link", "leads in a circle"));
  CHECK(is_refused("/dev/null", "neither a file nor a directory"));
  CHECK(is_refused("/", "the top of all directories"));
  scene.link(".", "d/again");
  CHECK(std::ranges::any_of(scene.plan().problems, [](const PlanProblem& problem) {
    return problem.reason.contains("leads back to this link");
  }));
  stdfs::remove(scene.root + "/d/again");
  stdfs::create_symlink("..", scene.top + "/else/deep/round");
  scene.link("../../else", "d/else");
  CHECK(std::ranges::any_of(scene.plan().problems, [](const PlanProblem& problem) {
    return problem.reason.contains("leads back to this link");
  }));
}

TEST_CASE("follow: what a link leads to is copied in the version that was planned, or not at all",
          "[stage][follow]") {
  LinkScene scene;
  scene.link(scene.top + "/else/deep/file", "d/link");
  scene.followed("d/link");
  const Plan plan = scene.plan();
  write_file(scene.top + "/secret/file", "outside");
  stdfs::rename(scene.top + "/else/deep", scene.top + "/else/old");
  stdfs::create_directory_symlink(scene.top + "/secret", scene.top + "/else/deep");
  Progress progress;
  const auto report = stage_in(plan, scene.buffer, posix_pfs(), scene.options, progress);
  REQUIRE_FALSE(report.ok());
  CHECK(report.failure->path == scene.top + "/else/deep/file");
}

TEST_CASE("follow: root does not follow other users' links to files that are not theirs",
          "[stage][follow]") {
  if (::geteuid() != 0) {
    SKIP("not root");
  }
  LinkScene scene;
  scene.link(scene.top + "/else/deep/file", "d/link");
  REQUIRE(::lchown((scene.root + "/d/link").c_str(), 1234, 1234) == 0);
  scene.followed("d");
  CHECK(has_problem(scene.plan(), scene.root + "/d/link",
                    "belongs to another user: root does not follow it"));
  REQUIRE(::chown((scene.top + "/else/deep/file").c_str(), 1234, 1234) == 0);
  CHECK(scene.plan().problems.empty());
}

TEST_CASE("links that lead elsewhere on the mount are noted", "[stage][follow]") {
  LinkScene scene;
  write_file(scene.root + "/other", "x");
  scene.link("file", "d/good");
  scene.link("./../d/./file", "d/round");
  scene.link(scene.config.mount_dir + "/d/file", "d/mount");
  scene.link(scene.top + "/else", "d/out");
  scene.link("../../else", "d/up");
  scene.link(scene.root + "/d/file", "d/past");
  scene.link("../other", "d/other");
  scene.resource("d");
  const Plan plan = scene.plan();
  CHECK(noted(plan) ==
        Paths{"d/other: leads to what is not an input: on the mount it leads nowhere",
              "d/out: leads out of root-dir", "d/past: leads to the PFS, past the mount",
              "d/up: leads out of root-dir: on the mount it leads elsewhere"});
  CHECK(describe(plan).contains("note: d/out -> " + scene.top +
                                "/else leads out of root-dir ('follow: true' stages in"));
}
