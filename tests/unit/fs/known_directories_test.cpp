// SPDX-License-Identifier: BSD-3-Clause
// The cost of paths in deep trees, counted in steps from one directory to the next, and that what
// is remembered of directories is true after they were renamed, exchanged or removed.
#include "fs/known_directories.hpp"

#include <linux/fs.h>

#include <catch2/catch_test_macros.hpp>

#include "support/live_buffer.hpp"
#include "support/staged_file.hpp"

using namespace efs;
using fs::Staging;
using test::LiveBuffer;

namespace {

constexpr fs::Origin version{.device = 1, .inode = 2, .size = 0, .mtime = 4, .ctime = 5};
constexpr std::size_t steps_a_name = 8;  // generous, and far less than the depths here

std::string level(const std::string& top, int depth) {
  std::string path = top;
  for (int i = 1; i < depth; ++i) {
    path += "/d";
  }
  return path;
}

void stage_file(LiveBuffer& buffer, const std::string& path) {
  const auto ino = *test::begin_file(*buffer.staging);
  REQUIRE(test::publish_file(
      *buffer.staging, *buffer.backend,
      {.ino = ino, .path = path, .attributes = {.mode = 0644}, .origin = version}));
}

/// Makes this many nested directories, with a file in each.
void stage_chain(LiveBuffer& buffer, const std::string& top, int depth) {
  std::string path = top;
  for (int i = 0; i < depth; ++i, path += "/d") {
    REQUIRE(buffer.staging->make_directory(path, {.mode = 0755}));
    stage_file(buffer, path + "/f");
  }
}

std::uint64_t steps_of(const LiveBuffer& buffer, const auto& work) {
  const auto before = buffer.staging->path_steps();
  work();
  return buffer.staging->path_steps() - before;
}

}  // namespace

TEST_CASE("paths of a deep tree cost steps in proportion to its names", "[fs][deep]") {
  constexpr int depth = 600;
  constexpr std::uint64_t enough = 2 * depth * steps_a_name;
  LiveBuffer buffer;
  Staging& staging = *buffer.staging;
  CHECK(steps_of(buffer, [&] { stage_chain(buffer, "d", depth); }) < enough);
  const auto names = staging.names();
  REQUIRE(names.size() == 2 * depth);
  CHECK(steps_of(buffer, [&] { CHECK(staging.look(names)->size() == 2 * depth); }) < enough);
  CHECK(steps_of(buffer, [&] { CHECK(staging.walk()->size() == 2 * depth); }) < enough);
  CHECK(steps_of(buffer, [&] { CHECK(staging.gone().empty()); }) < enough);
  std::vector<fs::PfsName> taken;
  for (const auto& name : names) {
    taken.push_back({.path = name});
  }
  CHECK(steps_of(buffer, [&] { CHECK(staging.revoke(taken, fs::Side::both).empty()); }) < enough);
  CHECK(steps_of(buffer, [&] {
          for (int i = depth; i > 0; --i) {
            REQUIRE(staging.remove(level("d", i) + "/f"));
            REQUIRE(staging.remove(level("d", i)));
          }
        }) < enough);
}

TEST_CASE("several deep trees side by side cost no more", "[fs][deep]") {
  constexpr int depth = 300, trees = 4;
  LiveBuffer buffer;
  const auto steps = steps_of(buffer, [&] {
    for (int i = 1; i <= depth; ++i) {
      for (int tree = 0; tree < trees; ++tree) {
        const auto path = level("top" + std::to_string(tree), i);
        REQUIRE(buffer.staging->make_directory(path, {.mode = 0755}));
        stage_file(buffer, path + "/f");
      }
    }
  });
  CHECK(steps < 2 * depth * trees * steps_a_name);
}

TEST_CASE("a directory that was renamed is not found where it was", "[fs][deep]") {
  constexpr int depth = 40;
  LiveBuffer buffer;
  auto& fs = *buffer.filesystem;
  stage_chain(buffer, "d", depth);
  stage_chain(buffer, "e", depth);
  const auto deepest = level("d", depth) + "/f", other = level("e", depth) + "/f";
  const auto ino = buffer.ino(deepest), other_ino = buffer.ino(other);
  SECTION("renamed") {
    const auto middle = buffer.ino(level("d", 20));
    REQUIRE(fs.rename({}, {middle, "d"}, {middle, "x"}, 0));
    CHECK_FALSE(buffer.exists(deepest));
    CHECK(buffer.ino(level(level("d", 20) + "/x", depth - 20) + "/f") == ino);
  }
  SECTION("exchanged") {
    REQUIRE(fs.rename({}, {fs::root_ino, "d"}, {fs::root_ino, "e"}, RENAME_EXCHANGE));
    CHECK(buffer.ino(deepest) == other_ino);
    CHECK(buffer.ino(other) == ino);
  }
  SECTION("removed, and made again") {
    const auto last = level("d", depth);
    const auto before = buffer.ino(last);
    REQUIRE(buffer.staging->remove(deepest));
    REQUIRE(buffer.staging->remove(last));
    CHECK_FALSE(buffer.exists(deepest));
    REQUIRE(buffer.staging->make_directory(last, {.mode = 0755}));
    stage_file(buffer, deepest);
    CHECK(buffer.ino(last) != before);
    CHECK(buffer.exists(deepest));
  }
  SECTION("a file has its name") {
    const auto last = level("d", depth);
    REQUIRE(buffer.staging->remove(deepest));
    REQUIRE(buffer.staging->remove(last));
    stage_file(buffer, last);
    CHECK(buffer.staging->find(deepest).error().code == ENOTDIR);
  }
}

TEST_CASE("what efs set said of a directory holds far below it", "[fs][deep]") {
  LiveBuffer buffer;
  stage_chain(buffer, "d", 60);
  const auto file = level("d", 60) + "/f";
  CHECK(buffer.staging->find(file)->keep == fs::Keep::by_rule);
  REQUIRE(buffer.staging->set_keep(level("d", 3), fs::Keep::temporary));
  REQUIRE(buffer.staging->set_keep(level("d", 50), fs::Keep::persistent));
  CHECK(buffer.staging->find(file)->keep == fs::Keep::persistent);
  CHECK(buffer.staging->find(file)->keep_path == level("d", 50));
  CHECK(buffer.staging->find(level("d", 50))->keep_path == level("d", 50));
  CHECK(buffer.staging->find(level("d", 49))->keep_path == level("d", 3));
  CHECK(buffer.staging->find("d/d")->keep == fs::Keep::by_rule);
  buffer.open();
  CHECK(buffer.staging->find(file)->keep_path == level("d", 50));
}

TEST_CASE("paths that lead nowhere, short and long", "[fs][deep]") {
  LiveBuffer buffer;
  stage_chain(buffer, "d", 40);
  for (const auto& top : {std::string("d"), level("d", 39)}) {
    INFO("below " << top);
    for (const char* bad : {"/", "//f", "/./f", "/../f"}) {
      CHECK(buffer.staging->make_directory(top + bad, {}).error().code == EINVAL);
    }
    CHECK(buffer.staging->make_directory(top + "/none/g", {}).error().code == ENOENT);
    CHECK(buffer.staging->make_directory(top + "/f/g", {}).error().code == ENOTDIR);
    CHECK(buffer.staging->find(top + "/")->path == top);
    CHECK(buffer.staging->find(top + "/./f").error().code == ENOENT);
  }
}
