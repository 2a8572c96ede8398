#include "stage/resume.hpp"

#include <catch2/catch_test_macros.hpp>

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
  item.origin = version;
  item.target = "target";
  return item;
}

Plan plan_of(std::vector<PlanEntry> entries) {
  Plan plan;
  for (const auto& entry : entries) {
    plan.bytes += entry.size;
    plan.needed += entry.size;
    if (entry.type == EntryType::file) ++plan.files;
  }
  plan.entries = std::move(entries);
  return plan;
}

std::string paths(const Plan& plan) {
  std::string text;
  for (const auto& entry : plan.entries) text += entry.path + " ";
  return text;
}

}  // namespace

TEST_CASE("an empty buffer gets everything") {
  Plan plan = plan_of({planned("d", EntryType::directory), planned("d/f"), planned("l", EntryType::symlink)});
  const auto result = subtract(plan, {});
  CHECK(paths(plan) == "d d/f l ");
  CHECK(plan.bytes == 10);
  CHECK(result.kept_files == 0);
}

TEST_CASE("what is there in the same version is not staged again") {
  Plan plan = plan_of({planned("d", EntryType::directory), planned("d/f"), planned("d/g"), planned("l", EntryType::symlink)});
  const auto result = subtract(plan, {there("d", S_IFDIR), there("d/f"), there("l", S_IFLNK)});
  CHECK(paths(plan) == "d d/g ");  // the directory once more: its times move
  CHECK(plan.bytes == 10);
  CHECK(plan.files == 1);
  CHECK(result.kept_files == 1);
  CHECK(result.outdated.empty());
}

TEST_CASE("a clean file of another version is replaced, one that the job changed is not") {
  auto old = there("old"), dirty = there("dirty"), saved = there("saved"), own = there("own"), link = there("link", S_IFLNK);
  old.origin->mtime = 99;
  dirty.origin->mtime = 99;
  dirty.dirty = true;
  saved.origin.reset();
  saved.saved = fs::Origin{};
  own.origin.reset();
  own.dirty = true;
  link.target = "elsewhere";
  Plan plan = plan_of({planned("dirty"), planned("link", EntryType::symlink), planned("old"), planned("own"), planned("saved")});
  const auto result = subtract(plan, {old, dirty, saved, own, link});
  CHECK(paths(plan) == "link old ");
  CHECK(result.outdated == std::vector<std::string>{"link", "old"});
  CHECK(result.job_files == 3);
  CHECK(plan.files == 1);
}

TEST_CASE("where the job put a directory in a file's place, or the reverse, it stays") {
  Plan plan = plan_of({planned("a"), planned("b", EntryType::directory)});
  auto directory = there("a", S_IFDIR), file = there("b");
  directory.dirty = file.dirty = true;
  subtract(plan, {directory, file});
  CHECK(paths(plan).empty());
}
