// SPDX-License-Identifier: BSD-3-Clause
#include "stage/resume/resume.hpp"

#include <catch2/catch_test_macros.hpp>

#include "base/clock.hpp"
#include "stage/plan/follow.hpp"

using namespace efs;
using namespace efs::stage;

namespace {

constexpr fs::Origin version{.device = 1, .inode = 2, .size = 10, .mtime = 3, .ctime = 4};

PlanEntry planned(const std::string& path, EntryType type = EntryType::file) {
  PlanEntry entry;
  entry.path = path;
  entry.type = type;
  entry.size = type == EntryType::file ? 10 : 0;
  entry.origin = version;
  entry.target = "target";
  return entry;
}

fs::WalkItem there(const std::string& path, mode_t type = S_IFREG) {
  fs::WalkItem item;
  item.path = path;
  item.attributes.st_mode = type | 0644;
  item.attributes.st_size = static_cast<off_t>(version.size);
  item.attributes.st_mtim = to_timespec(version.mtime);
  item.pfs.origin = version;
  if (S_ISREG(item.attributes.st_mode)) {
    item.pfs.content = version;
  }
  item.target = "target";
  return item;
}

Plan plan_of(std::vector<PlanEntry> entries) {
  Plan plan;
  for (const auto& entry : entries) {
    plan.bytes += entry.size;
    plan.needed += entry.size;
    if (entry.type == EntryType::file) {
      ++plan.files;
    }
  }
  plan.entries = std::move(entries);
  return plan;
}

std::string paths(const Plan& plan) {
  std::string text;
  for (const auto& entry : plan.entries) {
    text += entry.path + " ";
  }
  return text;
}

}  // namespace

TEST_CASE("an empty buffer gets everything") {
  Plan plan = plan_of(
      {planned("d", EntryType::directory), planned("d/f"), planned("l", EntryType::symlink)});
  const auto result = subtract(plan, {});
  CHECK(paths(plan) == "d d/f l ");
  CHECK(plan.bytes == 10);
  CHECK(result.kept_files == 0);
}

TEST_CASE("what is there in the same version is not staged again") {
  Plan plan = plan_of({planned("d", EntryType::directory), planned("d/f"), planned("d/g"),
                       planned("l", EntryType::symlink)});
  const auto result = subtract(plan, {there("d", S_IFDIR), there("d/f"), there("l", S_IFLNK)});
  CHECK(paths(plan) == "d d/g ");  // the directory once more: its times move
  CHECK(plan.bytes == 10);
  CHECK(plan.files == 1);
  CHECK(result.kept_files == 1);
  CHECK(result.outdated.empty());
}

TEST_CASE("a clean file whose container is not what was staged in is staged in anew") {
  auto shorter = there("shorter"), other = there("other");
  shorter.attributes.st_size = 9;
  other.attributes.st_mtim = to_timespec(1'000'000'000);
  Plan plan = plan_of({planned("other"), planned("same"), planned("shorter")});
  const auto result = subtract(plan, {other, there("same"), shorter});
  CHECK(paths(plan) == "other shorter ");
  CHECK(result.outdated == std::vector<std::string>{"other", "shorter"});
}

TEST_CASE("a content that has left the buffer may stay away if the plan agrees", "[evict]") {
  const auto is_kept = [](const PlanEntry& entry, const fs::WalkItem& item) {
    Plan plan = plan_of({entry});
    return subtract(plan, {item}).kept_files == 1;
  };
  auto entry = planned("f");
  auto item = there("f");
  item.content.remote = item.content.evictable = true;
  item.content.remote_source = source_of(entry);
  CHECK_FALSE(is_kept(entry, item));
  entry.evictable = true;
  CHECK(is_kept(entry, item));
  SECTION("another source, as by another path in the job file") {
    item.content.remote_source = "elsewhere";
    CHECK_FALSE(is_kept(entry, item));
  }
  SECTION("another version") {
    ++entry.origin.mtime;
    CHECK_FALSE(is_kept(entry, item));
  }
  SECTION("it need not be of one version") {
    item.content.accepts_change = true;
    CHECK_FALSE(is_kept(entry, item));
  }
  SECTION("room is kept for it") {
    item.content.evictable = false;
    CHECK_FALSE(is_kept(entry, item));
  }
  SECTION("it comes on access") {
    entry.stage = config::StageWhen::on_access;
    CHECK_FALSE(is_kept(entry, item));
  }
  SECTION("it has several names on the PFS") {
    entry.linked = true;
    CHECK_FALSE(is_kept(entry, item));
  }
}

TEST_CASE("a clean file of another version is replaced, one that the job changed is not") {
  auto old = there("old"), dirty = there("dirty"), saved = there("saved"), own = there("own"),
       link = there("link", S_IFLNK);
  old.pfs.origin->mtime = 99;
  dirty.pfs.origin->mtime = 99;
  dirty.pfs.dirty = true;
  saved.pfs.origin.reset();
  saved.pfs.saved = fs::Origin{};
  own.pfs.origin.reset();
  own.pfs.dirty = true;
  link.target = "elsewhere";
  Plan plan = plan_of({planned("dirty"), planned("link", EntryType::symlink), planned("old"),
                       planned("own"), planned("saved")});
  const auto result = subtract(plan, {old, dirty, saved, own, link});
  CHECK(paths(plan) == "link old ");
  CHECK(result.outdated == std::vector<std::string>{"link", "old"});
  CHECK(result.job_files == 3);
  CHECK(plan.files == 1);
}

TEST_CASE("where the job put a directory in a file's place, or the reverse, it stays") {
  Plan plan = plan_of({planned("a"), planned("b", EntryType::directory)});
  auto directory = there("a", S_IFDIR), file = there("b");
  directory.pfs.dirty = file.pfs.dirty = true;
  directory.pfs.origin.reset();
  file.pfs.origin.reset();
  CHECK(subtract(plan, {directory, file}).problems.empty());
  CHECK(paths(plan).empty());
}

TEST_CASE("below a file of the job's nothing is brought in") {
  Plan plan = plan_of({planned("d", EntryType::directory), planned("d/e", EntryType::directory),
                       planned("d/e/f"), planned("d/g")});
  auto file = there("d");
  file.pfs.dirty = true;
  file.pfs.origin.reset();
  const auto result = subtract(plan, {file});
  CHECK(paths(plan).empty());
  CHECK(result.job_files == 2);
  CHECK(result.problems.empty());
}

TEST_CASE("an input that became a directory takes the place of the file, if that is clean") {
  Plan plan = plan_of({planned("d", EntryType::directory), planned("d/f")});
  auto file = there("d");
  SECTION("clean") {
    const auto result = subtract(plan, {file});
    CHECK(paths(plan) == "d d/f ");
    CHECK(result.outdated == std::vector<std::string>{"d"});
  }
  SECTION("changed by the job") {
    file.pfs.dirty = true;
    const auto result = subtract(plan, {file});
    REQUIRE(result.problems.size() == 1);
    CHECK(result.problems[0].path == "d");
    CHECK(result.problems[0].reason.starts_with(
        "is a directory on the PFS now, and a file in the buffer"));
    CHECK(result.outdated.empty());
  }
}

TEST_CASE("an input that became a file takes the place of the directory, if all in that is clean") {
  Plan plan = plan_of({planned("d"), planned("e")});
  const auto directory = there("d", S_IFDIR), sub = there("d/sub", S_IFDIR);
  auto file = there("d/sub/f");
  CHECK(displaced_directories(plan.entries, {directory, there("e")}) ==
        std::vector<std::string>{"d"});
  SECTION("clean") {
    const auto result = subtract(plan, {directory, there("e"), sub, file});
    CHECK(paths(plan) == "d ");
    CHECK(result.outdated == std::vector<std::string>{"d/sub/f", "d/sub", "d"});
  }
  SECTION("with a file of the job's") {
    file.pfs.dirty = true;
    file.pfs.origin.reset();
    const auto result = subtract(plan, {directory, there("e"), sub, file});
    REQUIRE(result.problems.size() == 1);
    CHECK(result.problems[0].path == "d");
    CHECK(result.outdated.empty());
  }
}

TEST_CASE(
    "a directory that the job removed comes back with what is new in it, empty directories too") {
  Plan plan = plan_of({planned("in", EntryType::directory), planned("in/d", EntryType::directory),
                       planned("in/d/new", EntryType::directory), planned("in/d/old")});
  const std::vector<fs::WalkItem> items{there("in", S_IFDIR)};
  const std::vector<fs::WalkItem> removed{there("in/d", S_IFDIR), there("in/d/old")};
  subtract(plan, items, removed);
  CHECK(paths(plan) == "in in/d in/d/new ");
}

TEST_CASE("a PFS that was mounted again has the same versions") {
  auto mounted_again = planned("f");
  mounted_again.origin.device = 99;
  Plan plan = plan_of({mounted_again});
  CHECK(subtract(plan, {there("f")}).kept_files == 1);
  CHECK(paths(plan).empty());
}
