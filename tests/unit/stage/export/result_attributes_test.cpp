// SPDX-License-Identifier: BSD-3-Clause
// Which group and mode results get; with a results-dir that hands its own down, which takes root.

#include "stage/export/result_attributes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <sys/xattr.h>
#include <unistd.h>

#include <array>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr gid_t project_group = 23456, chosen_group = 34567;

struct ProjectScene : Scene {
  ProjectScene() {
    if (::geteuid() != 0) {
      SKIP("root alone can give a directory another group");
    }
    stdfs::create_directory(results);
    REQUIRE(::chown(results.c_str(), static_cast<uid_t>(-1), project_group) == 0);
    REQUIRE(::chmod(results.c_str(), 02775) == 0);
  }

  gid_t group(const std::string& path) const { return stat_of(results + "/" + path).st_gid; }

  mode_t mode(const std::string& path) const {
    return stat_of(results + "/" + path).st_mode & 07777U;
  }

  void chgrp(const std::string& path, gid_t gid) { buffer.nodes.at(path).attributes.gid = gid; }
};

}  // namespace

TEST_CASE("results get the group that results-dir hands down, and directories hand it on",
          "[stage][out][group]") {
  ProjectScene scene;
  const bool hides = GENERATE(false, true);
  if (hides) {
    scene.options.partial_tag = ".0123456789ab";
  }
  scene.buffer.put("d", S_IFDIR, {}, 0755);
  for (const char* name : {"d/1", "d/2", "d/3", "d/4", "top"}) {
    scene.buffer.put(name, S_IFREG, "x");
  }
  scene.buffer.put("d/link", S_IFLNK, "1");
  scene.buffer.put("setgid", S_IFREG, "x", 02755);
  for (const auto action : {Action::staged_out, Action::kept}) {
    const Receipt receipt = scene.out();
    REQUIRE(receipt.verdict == Verdict::complete);
    CHECK(action_of(receipt, "top") == action);
    for (const char* name : {"d", "d/1", "d/4", "d/link", "top", "setgid"}) {
      CHECK(scene.group(name) == project_group);
    }
    CHECK(scene.mode("d") == 02755);
    CHECK(scene.mode("top") == 0644);
    CHECK(scene.mode("setgid") == 0755);  // for another group than the program meant
  }
}

TEST_CASE("a group that a program has chosen is the result's", "[stage][out][group]") {
  ProjectScene scene;
  scene.buffer.put("d", S_IFDIR, {}, 02770);
  scene.chgrp("d", chosen_group);
  scene.buffer.put("d/f", S_IFREG, "x");
  scene.chgrp("d/f", chosen_group);
  scene.buffer.nodes.at("d/f").handed_down = true;
  scene.buffer.put("own", S_IFREG, "x");
  scene.chgrp("own", chosen_group);
  // One that the directory in the buffer handed down is no choice.
  scene.buffer.put("by-directory", S_IFREG, "x");
  scene.chgrp("by-directory", 45678);
  scene.buffer.nodes.at("by-directory").handed_down = true;
  REQUIRE(scene.out().verdict == Verdict::complete);
  for (const char* name : {"d", "d/f", "own"}) {
    CHECK(scene.group(name) == chosen_group);
  }
  CHECK(scene.group("by-directory") == project_group);
}

TEST_CASE(
    "what the mount's top handed down is not brought to a results-dir without a group of its own",
    "[stage][out][group]") {
  ProjectScene scene;
  REQUIRE(::chown(scene.results.c_str(), static_cast<uid_t>(-1), ::getegid()) == 0);
  REQUIRE(::chmod(scene.results.c_str(), 0755) == 0);
  scene.buffer.put("d", S_IFDIR, {}, 02755);
  scene.buffer.put("d/f", S_IFREG, "x");
  for (const char* name : {"d", "d/f"}) {
    scene.chgrp(name, project_group);
    scene.buffer.nodes.at(name).handed_down = true;
  }
  REQUIRE(scene.out().verdict == Verdict::complete);
  CHECK(scene.group("d") == ::getegid());
  CHECK(scene.mode("d") == 0755);
  CHECK(scene.group("d/f") == ::getegid());
}

TEST_CASE("an input in place keeps its group", "[stage][out][group]") {
  ProjectScene scene;
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  write_file(scene.root + "/f", "one");
  REQUIRE(::chown(scene.root.c_str(), static_cast<uid_t>(-1), project_group) == 0);
  REQUIRE(::chmod(scene.root.c_str(), 02775) == 0);
  scene.resource("f");
  REQUIRE(scene.in().ok());
  scene.buffer.overwrite("f", "two");
  REQUIRE(scene.out().verdict == Verdict::complete);
  CHECK(content_of(scene.root + "/f") == "two");
  CHECK(stat_of(scene.root + "/f").st_gid == ::getegid());
}

TEST_CASE("results-group and results-mode", "[stage][out][group]") {
  ProjectScene scene;
  scene.config.results_group = std::to_string(chosen_group);
  scene.config.results_mode = 0640;
  scene.buffer.put("d", S_IFDIR, {}, 0700);
  scene.buffer.put("d/f", S_IFREG, "x", 0600);
  scene.buffer.put("d/program", S_IFREG, "x", 0700);
  for (const auto action : {Action::staged_out, Action::kept}) {
    const Receipt receipt = scene.out();
    REQUIRE(receipt.verdict == Verdict::complete);
    CHECK(action_of(receipt, "d/f") == action);
    for (const char* name : {"d", "d/f", "d/program"}) {
      CHECK(scene.group(name) == chosen_group);
    }
    CHECK(scene.mode("d") == 02750);
    CHECK(scene.mode("d/f") == 0640);
    CHECK(scene.mode("d/program") == 0750);
  }
  CHECK(with_results_mode(S_IFREG | 0755, 0444) == (S_IFREG | 0555));
  CHECK(with_results_mode(S_IFDIR | 01777, 0440) == (S_IFDIR | 01750));
}

TEST_CASE("a default ACL of results-dir leaves of a result's mode what it allows",
          "[stage][out][acl]") {
  Scene scene;
  stdfs::create_directory(scene.results);
  // user::rwx, user:12345:rwx, group::r-x, mask::rwx, other::---
  const std::array<std::uint16_t, 22> acl{2,      0,      1,    7, 0xffff, 0xffff, 2,    7,
                                          12345,  0,      4,    5, 0xffff, 0xffff, 0x10, 7,
                                          0xffff, 0xffff, 0x20, 0, 0xffff, 0xffff};
  if (::setxattr(scene.results.c_str(), "system.posix_acl_default", acl.data(), sizeof acl, 0) !=
      0) {
    SKIP("no ACLs here");
  }
  scene.buffer.put("d", S_IFDIR, {}, 0755);
  scene.buffer.put("d/f", S_IFREG, "x", 0664);
  for (const auto action : {Action::staged_out, Action::kept}) {
    const Receipt receipt = scene.out();
    REQUIRE(receipt.verdict == Verdict::complete);
    CHECK(action_of(receipt, "d/f") == action);
    CHECK((stat_of(scene.results + "/d/f").st_mode & 07777U) == 0660);
    CHECK((stat_of(scene.results + "/d").st_mode & 07777U) == 0750);
    CHECK(::getxattr((scene.results + "/d/f").c_str(), "system.posix_acl_access", nullptr, 0) > 0);
  }
}
