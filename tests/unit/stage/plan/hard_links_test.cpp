// SPDX-License-Identifier: BSD-3-Clause
// Files that have several names on the PFS: one file with those names in the buffer, and again when
// they come back.
#include "stage/plan/hard_links.hpp"

#include <catch2/catch_test_macros.hpp>

#include "stage/live/load.hpp"
#include "stage/resume/resume.hpp"
#include "support/live_buffer.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

void link(const Scene& scene, const std::string& from, const std::string& to) {
  stdfs::create_directories(stdfs::path(scene.root + "/" + to).parent_path());
  stdfs::create_hard_link(scene.root + "/" + from, scene.root + "/" + to);
}

PlanEntry name_of_file(const std::string& path, std::uint64_t inode) {
  PlanEntry entry;
  entry.path = path;
  entry.size = 10;
  entry.origin = {.device = 1, .inode = inode, .size = 10, .mtime = 3, .ctime = 4};
  entry.linked = true;
  return entry;
}

fs::WalkItem there(const PlanEntry& entry) {
  fs::WalkItem item;
  item.path = entry.path;
  item.attributes.st_mode = S_IFREG | 0644;
  item.attributes.st_size = static_cast<off_t>(entry.origin.size);
  item.attributes.st_mtim = to_timespec(entry.origin.mtime);
  item.pfs.origin = entry.origin;
  return item;
}

}  // namespace

TEST_CASE("hard links: across directories and resources one file, read and counted once",
          "[stage][in][links]") {
  Scene scene;
  write_file(scene.root + "/a/one", std::string(9000, 'x'));
  link(scene, "a/one", "b/two");
  link(scene, "a/one", "outside/three");
  write_file(scene.root + "/a/single", "y");
  scene.resource("a");
  scene.resource("b");
  const Plan plan = scene.plan();
  CHECK(plan.bytes == 9001);
  CHECK(plan.needed == 3 * 4096 + 4096);
  CHECK(plan.files == 3);
  CHECK(plan.inodes == 4);  // two directories, two files
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  const auto report = scene.in(pfs);
  REQUIRE(report.ok());
  CHECK(report.files == 3);
  CHECK(report.bytes == 9001);
  auto& nodes = scene.buffer.nodes;
  CHECK(nodes.at("a/one").ino == nodes.at("b/two").ino);
  CHECK(nodes.at("b/two").origin == nodes.at("a/one").origin);
  CHECK_FALSE(nodes.at("b/two").dirty);
  CHECK_FALSE(nodes.contains("outside/three"));
}

TEST_CASE("hard links: a file that is full of holes fits where its data fit once",
          "[stage][in][links]") {
  Scene scene;
  write_file(scene.root + "/a", std::string(1 << 20, 'x'));
  link(scene, "a", "b");
  scene.resource("");
  CHECK(scene.plan(1 << 20).problems.empty());
  CHECK_FALSE(scene.plan((1 << 20) - 1).problems.empty());
}

TEST_CASE("hard links: more names than a record takes begin another file", "[stage][in][links]") {
  std::vector<PlanEntry> entries;
  for (int i = 100; i < 300; ++i) {
    entries.push_back(name_of_file(std::string(1000, 'd') + std::to_string(i), 7));
  }
  entries.push_back(name_of_file("other", 8));
  group_links(entries);
  std::size_t files = 0;
  for (const auto& entry : entries) {
    files += entry.link_to.empty() ? 1 : 0;
  }
  CHECK(files == 5);  // 200 names of 1004 bytes in pieces of 64 KiB, and the other
  CHECK(entries[1].link_to == entries[0].path);
}

TEST_CASE("hard links: a stage-in that goes on links to the names that are there",
          "[stage][in][links]") {
  std::vector<PlanEntry> entries{name_of_file("a", 7), name_of_file("b", 7), name_of_file("c", 7),
                                 name_of_file("x", 8), name_of_file("y", 8)};
  group_links(entries);
  Plan plan;
  plan.entries = entries;
  SECTION("the first name is there") {
    subtract(plan, {there(entries[0])});
    REQUIRE(plan.entries.size() == 4);
    CHECK(plan.entries[0].link_to == "a");
    CHECK(plan.entries[1].link_to == "a");
    CHECK(plan.bytes == 10);
    CHECK(plan.files == 4);
  }
  SECTION("another name is there") {
    subtract(plan, {there(entries[1])});
    REQUIRE(plan.entries.size() == 4);
    CHECK(plan.entries[0].link_to == "b");
    CHECK(plan.entries[1].link_to == "b");
  }
  SECTION("the job has changed the first name's file: the others are one file without it") {
    auto changed = there(entries[0]);
    changed.pfs.dirty = true;
    subtract(plan, {changed});
    REQUIRE(plan.entries.size() == 4);
    CHECK(plan.entries[0].link_to.empty());
    CHECK(plan.entries[1].link_to == "b");
    CHECK(plan.bytes == 20);
  }
  SECTION("it is there in another version") {
    auto old = there(entries[0]);
    old.pfs.origin->mtime = 1;
    const auto result = subtract(plan, {old});
    CHECK(result.outdated == std::vector<std::string>{"a"});
    CHECK(plan.entries[0].link_to.empty());
    CHECK(plan.entries[1].link_to == "a");
  }
}

TEST_CASE("hard links: in place, what came in as one file goes back as one",
          "[stage][out][links]") {
  Scene scene;
  write_file(scene.root + "/d/a", "old");
  link(scene, "d/a", "d/b");
  link(scene, "d/a", "e/c");
  scene.resource("d");
  scene.resource("e", config::FileClass::temporary);
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  REQUIRE(scene.in().ok());
  scene.buffer.overwrite("d/a", "new content");
  for (const auto* name : {"d/b", "e/c"}) {
    scene.buffer.nodes.at(name).dirty = true;
    scene.buffer.nodes.at(name).attributes = scene.buffer.nodes.at("d/a").attributes;
  }
  SECTION("nobody has changed it") {
    const auto receipt = scene.out();
    INFO(describe(receipt));
    CHECK(receipt.verdict == Verdict::complete);
    CHECK(action_of(receipt, "d/b") == Action::staged_out);
    CHECK(action_of(receipt, "e/c") == Action::dropped);
    CHECK(content_of(scene.root + "/d/b") == "new content");
    CHECK(stat_of(scene.root + "/d/a").st_ino == stat_of(scene.root + "/d/b").st_ino);
    CHECK(content_of(scene.root + "/e/c") == "old");
    const auto again = scene.out();
    CHECK(again.verdict == Verdict::complete);
    CHECK(stat_of(scene.root + "/d/a").st_ino == stat_of(scene.root + "/d/b").st_ino);
  }
  SECTION("somebody has: no name is touched") {
    write_file(scene.root + "/d/a", "theirs");
    const auto receipt = scene.out();
    CHECK(action_of(receipt, "d/a") == Action::conflict);
    CHECK(action_of(receipt, "d/b") == Action::conflict);
    CHECK(content_of(scene.root + "/d/b") == "theirs");
  }
  SECTION("somebody has put another file under one of the names") {
    ::unlink((scene.root + "/d/b").c_str());
    write_file(scene.root + "/d/b", "theirs");
    const auto receipt = scene.out();
    CHECK(action_of(receipt, "d/a") == Action::staged_out);
    CHECK(action_of(receipt, "d/b") == Action::conflict);
    CHECK(content_of(scene.root + "/d/b") == "theirs");
  }
  SECTION("somebody does so between the look and the link") {
    FaultPfs pfs([&](auto, const std::string& call, const std::string& name) {
      if (call != "link" || !name.starts_with("b")) {
        return 0;
      }
      write_file(scene.root + "/d/new", "theirs");
      stdfs::rename(scene.root + "/d/new", scene.root + "/d/b");
      return 0;
    });
    const auto receipt = scene.out(pfs);
    INFO(describe(receipt));
    CHECK(action_of(receipt, "d/a") == Action::staged_out);
    CHECK(action_of(receipt, "d/b") == Action::conflict);
    CHECK(content_of(scene.root + "/d/b") == "theirs");
    CHECK(partials_below(scene.root) == 0);
  }
  SECTION("keep-both keeps both") {
    write_file(scene.root + "/d/a", "theirs");
    scene.config.on_conflict = config::OnConflict::keep_both;
    const auto receipt = scene.out();
    CHECK(receipt.verdict == Verdict::complete);
    CHECK(content_of(scene.root + "/d/b") == "theirs");
    CHECK(content_of(scene.root + "/d/b.efs-job") == "new content");
  }
  SECTION("overwrite overwrites") {
    write_file(scene.root + "/d/a", "theirs");
    scene.config.on_conflict = config::OnConflict::overwrite;
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(content_of(scene.root + "/d/b") == "new content");
    CHECK(stat_of(scene.root + "/d/a").st_ino == stat_of(scene.root + "/d/b").st_ino);
  }
}

TEST_CASE(
    "hard links: a load brings both names of a file as one, replaces them as one, and leaves what "
    "is there",
    "[stage][load][links]") {
  Scene scene;
  efs::test::LiveBuffer buffer;
  write_file(scene.root + "/d/a", "content");
  link(scene, "d/a", "d/b");
  const auto load_all = [&](bool replace) {
    Progress progress;
    return load({.config = scene.config,
                 .staging = *buffer.staging,
                 .pfs = posix_pfs(),
                 .options = scene.options,
                 .progress = progress},
                {.names = {"d"}, .replace = replace});
  };
  auto report = load_all(false);
  REQUIRE(report.ok());
  CHECK(report.files == 2);
  CHECK(report.bytes == 7);
  CHECK(buffer.ino("d/a") == buffer.ino("d/b"));
  CHECK(buffer.staging->find("d/b")->pfs.linked);
  CHECK_FALSE(buffer.staging->find("d/b")->pfs.dirty);
  CHECK(load_all(false).already == 2);
  write_file(scene.root + "/d/b", "another version");
  CHECK_FALSE(load_all(false).ok());
  report = load_all(true);
  REQUIRE(report.ok());
  CHECK(buffer.ino("d/a") == buffer.ino("d/b"));
  CHECK(buffer.read("d/a") == "another version");
  CHECK(buffer.containers() == 1);
}
