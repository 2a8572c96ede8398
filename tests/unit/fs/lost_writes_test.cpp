// SPDX-License-Identifier: BSD-3-Clause
// Writes that failed although a program believes them done: every later process of the store knows
// that the file is incomplete.
#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/dead_image_looks.hpp"
#include "support/open_handles.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"

namespace efs::lost_writes_test {

using fs::Filesystem;

namespace {

constexpr std::uint64_t never = 1U << 30U;  // bytes of journal at which a snapshot is made

struct LossScene {
  test::SimWorld world{Durability::page, 1};
  test::SimBackend backend{world};
  std::unique_ptr<Filesystem> filesystem;

  LossScene() { open({}); }

  void open(Filesystem::Options options, std::uint64_t smallest_compaction = never) {
    filesystem.reset();
    options.medium = std::make_shared<test::SimMedium>(world);
    options.smallest_compaction = smallest_compaction;
    auto opened = Filesystem::open(backend, options);
    REQUIRE(opened);
    filesystem = std::move(*opened);
  }

  std::uint64_t make(const std::string& name) const {
    return filesystem->make_node({}, fs::root_ino, name, S_IFREG | 0644, 0)->ino;
  }

  bool is_incomplete(const std::string& path) const {
    return fs::Staging(*filesystem).find(path)->content.unreadable.contains("lacks some");
  }

  // Makes names until the journal has no room for another record.
  int fill_journal() {
    world.fail_call(1, ENOSPC, true);
    const std::string target(2000, 't');
    for (int made = 0;; ++made) {
      const auto done =
          filesystem->make_symlink({}, fs::root_ino, "l" + std::to_string(made), target);
      if (!done) {
        CHECK(done.error().code == ENOSPC);
        return made;
      }
    }
  }
};

}  // namespace

TEST_CASE("a file with a lost write is incomplete to every later process, until it is begun anew",
          "[fs][recovery][takeover]") {
  LossScene s;
  const auto file = s.make("file");
  s.make("other");
  CHECK(s.filesystem->record_lost_write(file));
  CHECK_FALSE(s.filesystem->record_lost_write(file));
  REQUIRE(s.filesystem->rename({}, {fs::root_ino, "file"}, {fs::root_ino, "moved"}, 0));
  REQUIRE(s.filesystem->link({}, file, fs::root_ino, "linked"));
  const bool takeover = GENERATE(false, true), snapshot = GENERATE(false, true);
  for (int process = 0; process < 3; ++process) {
    CHECK(s.is_incomplete("moved"));
    CHECK(s.is_incomplete("linked"));
    CHECK_FALSE(s.is_incomplete("other"));
    s.open({.takeover = takeover}, snapshot ? 1 : never);
    REQUIRE(s.filesystem->setattr({}, file, {.mode = 0600}));  // makes a snapshot
  }
  CHECK((s.filesystem->recovery().journal.first_sequence > 1) == snapshot);
  REQUIRE(s.filesystem->setattr({}, file, {.size = 1}));
  CHECK(s.is_incomplete("moved"));
  REQUIRE(s.filesystem->setattr({}, file, {.size = 0}));
  for (int process = 0; process < 2; ++process) {
    CHECK_FALSE(s.is_incomplete("moved"));
    s.open({.takeover = takeover});
  }
  CHECK(s.filesystem->record_lost_write(file));
  s.open({.takeover = takeover});
  CHECK(s.is_incomplete("linked"));
}

TEST_CASE("an offline store says which files are incomplete, and a salvage does not export them",
          "[fs][salvage]") {
  const test::DeadImage dead;
  {
    const test::Started started(dead);
    REQUIRE(started.filesystem);
    REQUIRE((*started.filesystem)->record_lost_write(dead.ino("d/big")));
  }
  const auto receipt = test::brought_out(dead);
  const auto& entry = test::told_of(receipt, "d/big");
  CHECK(entry.action == stage::Action::failed);
  CHECK(entry.unreadable);
  CHECK(entry.reason.contains("lacks some"));
  CHECK(stage::exit_code(receipt) == 3);
  CHECK_FALSE(std::filesystem::exists(dead.results() + "/d/big"));
  CHECK(test::text_of(dead.results() + "/replaced") == "new");
  CHECK(test::damage_in(dead).empty());
}

TEST_CASE("a lost write is recorded on a full store, and takes no room from removals",
          "[fs][recovery]") {
  LossScene s;
  std::vector<std::uint64_t> files;
  for (int i = 0; i < 200; ++i) {
    files.push_back(s.make("file" + std::to_string(i)));
  }
  const int links = s.fill_journal();
  REQUIRE(links > 100);
  for (const auto file : files) {
    CHECK(s.filesystem->record_lost_write(file));
  }
  CHECK_FALSE(s.filesystem->failed());
  CHECK(s.filesystem->setattr({}, fs::root_ino, {.mode = 0700}).error().code == ENOSPC);
  s.world.fail_call(0);
  s.open({});
  CHECK(s.is_incomplete("file0"));
  CHECK(s.is_incomplete("file199"));
  s.world.fail_call(1, ENOSPC, true);
  CHECK(s.filesystem->new_connection());
  for (int i = 0; i < links; ++i) {
    CHECK(s.filesystem->unlink({}, fs::root_ino, "l" + std::to_string(i)));
  }
  s.world.fail_call(0);
}

TEST_CASE("a file system that cannot record a lost write is read-only, and knows the file",
          "[fs][recovery]") {
  LossScene s;
  std::vector<std::uint64_t> files;
  for (int i = 0; i < 60; ++i) {  // the first ones find room
    files.push_back(s.make("file" + std::to_string(i)));
  }
  s.fill_journal();
  s.world.fail_call(1, EIO, true);
  for (const auto file : files) {
    CHECK(s.filesystem->record_lost_write(file));
  }
  s.world.fail_call(0);
  CHECK(s.filesystem->failed());
  CHECK(s.is_incomplete("file0"));
  CHECK(s.is_incomplete("file59"));
  CHECK(s.filesystem->make_symlink({}, fs::root_ino, "new", "t").error().code == EROFS);
}

TEST_CASE("a file stays incomplete if its truncation cannot be made durable", "[fs][recovery]") {
  LossScene s;
  const auto file = s.make("file");
  REQUIRE(s.filesystem->record_lost_write(file));
  for (std::uint64_t n = 1; s.world.failed_call() != "data sync"; ++n) {
    REQUIRE(n < 100);
    s.world.fail_call(n);
    const auto done = s.filesystem->setattr({}, file, {.size = 0});
    s.world.fail_call(0);
    CHECK((done || s.is_incomplete("file")));
    if (!s.is_incomplete("file")) {
      REQUIRE(s.filesystem->record_lost_write(file));
    }
  }
  CHECK(s.is_incomplete("file"));
}

}  // namespace efs::lost_writes_test
