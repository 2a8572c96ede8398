// SPDX-License-Identifier: BSD-3-Clause
// Recovery of a store on a real directory after the death of the process.
#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdio>

#include "backends/fsdax.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/temp.hpp"

using namespace efs;
using fs::Filesystem;

namespace {

struct RecoveryScene {
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Filesystem> filesystem;

  RecoveryScene() {
    for (const char* part : {"/data", "/meta"}) {
      ::mkdir((directory.path() + part).c_str(), 0700);
    }
    metadata.reset(
        ::open((directory.path() + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    open({});
  }

  void open(Filesystem::Options options) {
    filesystem.reset();
    FsdaxOptions store;
    store.directory.reset(
        ::open((directory.path() + "/data").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    store.read_only = options.read_only;
    backend = std::move(*make_fsdax(std::move(store)));
    options.metadata_directory = metadata.get();
    auto opened = Filesystem::open(*backend, options);
    REQUIRE(opened);
    filesystem = std::move(*opened);
  }

  std::size_t containers() {
    std::size_t count = 0;
    REQUIRE(backend->for_each([&](std::uint64_t) { ++count; }));
    return count;
  }

  std::uint64_t journal_space() const {
    struct stat st{};
    ::fstatat(metadata.get(), "journal", &st, 0);
    return static_cast<std::uint64_t>(st.st_blocks) * 512;
  }
};

}  // namespace

TEST_CASE("recovery frees containers that no record knows and keeps the others") {
  RecoveryScene scene;
  const auto known = scene.filesystem->make_node({}, fs::root_ino, "known", S_IFREG | 0644, 0)->ino;
  const auto unfinished = fs::Staging(*scene.filesystem).begin_open_file()->ino;
  REQUIRE(scene.backend->create(200));  // made ahead, say
  CHECK(scene.containers() == 3);
  scene.open({});
  CHECK(scene.filesystem->recovery().unknown_containers == 2);
  CHECK(scene.containers() == 1);
  CHECK(scene.backend->attributes(known));
  CHECK_FALSE(scene.backend->attributes(unfinished));
  // R4: freed numbers cause no conflict.
  for (int i = 0; i < 5; ++i) {
    CHECK(scene.filesystem->make_node({}, fs::root_ino, "new" + std::to_string(i), S_IFREG | 0644,
                                      0));
  }
}

TEST_CASE("recovery keeps room for removals") {
  RecoveryScene scene;
  const std::string stem(200, 'n');
  constexpr int names = 20000;
  for (int i = 0; i < names; ++i) {
    REQUIRE(scene.filesystem->make_symlink({}, fs::root_ino, stem + std::to_string(i), "t"));
  }
  scene.open({});
  std::uint64_t removals = 0;
  for (int i = 0; i < names; ++i) {
    removals += store::Journal::record_size(stem.size() + std::to_string(i).size() + 32);
  }
  CHECK(scene.journal_space() >= scene.filesystem->recovery().journal.tail + removals);
}

TEST_CASE("a long journal of what is there is no reason for a snapshot, one of what is gone is") {
  RecoveryScene scene;
  constexpr std::uint64_t long_journal = 5U << 20U;
  scene.open({.smallest_compaction = long_journal});
  const std::string target(4000, 't');
  const auto fill = [&] {
    for (int i = 0; i < 2000; ++i) {
      REQUIRE(scene.filesystem->make_symlink({}, fs::root_ino, "l" + std::to_string(i), target));
    }
  };
  fill();
  scene.open({.smallest_compaction = long_journal});
  CHECK(scene.filesystem->recovery().journal.tail > long_journal);
  CHECK(scene.filesystem->recovery().journal.first_sequence == 1);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 2000; ++i) {
      REQUIRE(scene.filesystem->unlink({}, fs::root_ino, "l" + std::to_string(i)));
    }
    fill();
  }
  scene.open({});
  CHECK(scene.filesystem->recovery().journal.first_sequence > 1);
}

TEST_CASE("a look changes nothing and answers changes with EROFS") {
  RecoveryScene scene;
  const auto ino = scene.filesystem->make_node({}, fs::root_ino, "f", S_IFREG | 0644, 0)->ino;
  const std::string text = "content";
  REQUIRE(scene.filesystem->write({}, ino, std::as_bytes(std::span(text)), 0));
  REQUIRE(scene.backend->create(200));
  scene.open({.read_only = true});
  CHECK(scene.filesystem->lookup(fs::root_ino, "f"));
  std::string read(text.size(), '?');
  CHECK(scene.filesystem->read(ino, std::as_writable_bytes(std::span(read)), 0) == text.size());
  CHECK(read == text);
  CHECK(scene.filesystem->unlink({}, fs::root_ino, "f").error().code == EROFS);
  CHECK(scene.filesystem->setattr({}, ino, {.mode = 0600}).error().code == EROFS);
  CHECK(scene.filesystem->make_node({}, fs::root_ino, "g", S_IFDIR | 0755, 0).error().code ==
        EROFS);
  CHECK(scene.containers() == 2);
}

TEST_CASE(
    "what is booked as saved is clean until it changes, also after recovery and in a snapshot") {
  RecoveryScene scene;
  const auto ino = scene.filesystem->make_node({}, fs::root_ino, "result", S_IFREG | 0644, 0)->ino;
  const auto is_dirty = [&] {
    return fs::Staging(*scene.filesystem).walk()->at(0).pfs.dirty;
  };
  CHECK(is_dirty());
  REQUIRE(fs::Staging(*scene.filesystem).mark_saved("result", {.device = 2, .inode = 7}, false));
  CHECK_FALSE(is_dirty());
  scene.open({.smallest_compaction = 1});
  CHECK_FALSE(is_dirty());
  REQUIRE(scene.filesystem->setxattr({}, fs::root_ino, "user.x", "makes a snapshot", 0));
  scene.open({});
  CHECK_FALSE(is_dirty());
  REQUIRE(scene.filesystem->open({}, ino, O_WRONLY));
  CHECK(is_dirty());
}

TEST_CASE("an extended attribute that changes makes a saved file dirty") {
  RecoveryScene scene;
  const auto ino = scene.filesystem->make_node({}, fs::root_ino, "result", S_IFREG | 0644, 0)->ino;
  const auto is_dirty = [&] {
    return fs::Staging(*scene.filesystem).walk()->at(0).pfs.dirty;
  };
  REQUIRE(fs::Staging(*scene.filesystem).mark_saved("result", {.device = 2, .inode = 7}, false));
  CHECK_FALSE(is_dirty());
  REQUIRE(scene.filesystem->setxattr({}, ino, "user.x", "y", 0));
  CHECK(is_dirty());
  scene.open({});
  CHECK(is_dirty());
}

TEST_CASE("the names of a hard link are saved together") {
  RecoveryScene scene;
  const auto ino = scene.filesystem->make_node({}, fs::root_ino, "a", S_IFREG | 0644, 0)->ino;
  REQUIRE(scene.filesystem->link({}, ino, fs::root_ino, "b"));
  const auto dirty = [&](std::size_t i) {
    return fs::Staging(*scene.filesystem).walk()->at(i).pfs.dirty;
  };
  const fs::Origin copy{.device = 2, .inode = 7};
  REQUIRE(fs::Staging(*scene.filesystem).mark_saved("a", copy, false));
  CHECK_FALSE(dirty(0));
  CHECK(dirty(1));
  REQUIRE(fs::Staging(*scene.filesystem).mark_saved("b", copy, false));
  scene.open({});
  CHECK_FALSE(dirty(0));
  CHECK_FALSE(dirty(1));
  // A new copy under another name: only its own name counts.
  REQUIRE(fs::Staging(*scene.filesystem).mark_saved("b", {.device = 2, .inode = 8}, false));
  CHECK(dirty(0));
  CHECK_FALSE(dirty(1));
}

TEST_CASE("under another name a saved file is not saved") {
  RecoveryScene scene;
  REQUIRE(scene.filesystem->make_node({}, fs::root_ino, "result", S_IFREG | 0644, 0));
  REQUIRE(fs::Staging(*scene.filesystem).mark_saved("result", {.device = 2, .inode = 7}, false));
  REQUIRE(scene.filesystem->rename({}, {fs::root_ino, "result"}, {fs::root_ino, "other"}, 0));
  CHECK(fs::Staging(*scene.filesystem).walk()->at(0).pfs.dirty);
}

TEST_CASE(
    "a file whose container something has removed keeps its name, is never empty, and can be "
    "removed") {
  RecoveryScene scene;
  const std::string text = "content";
  for (const char* name : {"lost", "whole"}) {
    const auto ino = scene.filesystem->make_node({}, fs::root_ino, name, S_IFREG | 0644, 0)->ino;
    REQUIRE(scene.filesystem->write({}, ino, std::as_bytes(std::span(text)), 0));
  }
  const auto ino = scene.filesystem->lookup(fs::root_ino, "lost")->ino;
  REQUIRE(scene.backend->remove(ino));
  scene.open({.takeover = GENERATE(false, true)});
  CHECK(scene.filesystem->recovery().lost == std::vector<std::string>{"lost"});
  // The kernel must cache nothing, because the container may be restored.
  const auto entry = scene.filesystem->lookup(fs::root_ino, "lost");
  REQUIRE(entry);
  CHECK(entry->may_change_now);
  std::string read(text.size(), '?');
  CHECK(scene.filesystem->read(ino, std::as_writable_bytes(std::span(read)), 0).error().code ==
        EIO);
  CHECK(scene.filesystem->write({}, ino, std::as_bytes(std::span(text)), 0).error().code == EIO);
  CHECK(scene.filesystem->container(ino).error().code == EIO);
  CHECK(scene.filesystem->open({}, ino, O_WRONLY).error().code == EIO);
  CHECK(scene.filesystem->setattr({}, ino, {.size = 0}).error().code == EIO);
  CHECK(scene.filesystem->fsync(ino, false).error().code == EIO);
  CHECK(scene.filesystem->setattr({}, ino, {.mode = 0600}));
  const auto items = fs::Staging(*scene.filesystem).walk();
  REQUIRE(items);
  CHECK(items->at(0).content.unreadable.starts_with("container " + std::to_string(ino)));
  CHECK(items->at(0).pfs.dirty);
  CHECK(items->at(1).content.unreadable.empty());
  CHECK(items->at(1).attributes.st_size == static_cast<off_t>(text.size()));
  CHECK(scene.filesystem->unlink({}, fs::root_ino, "lost"));
  CHECK(fs::Staging(*scene.filesystem).walk()->size() == 1);
}

TEST_CASE("a successor goes on where containers cannot be listed, a start does not") {
  RecoveryScene scene;
  const auto ino = scene.filesystem->make_node({}, fs::root_ino, "f", S_IFREG | 0644, 0)->ino;
  char name[8];
  std::snprintf(name, sizeof name, "/%02x", static_cast<unsigned>(ino % 256));
  const std::string directory = scene.directory.path() + "/data" + name;
  REQUIRE(::rename(directory.c_str(), (directory + "-aside").c_str()) == 0);
  REQUIRE(std::fclose(std::fopen(directory.c_str(), "w")) == 0);
  scene.filesystem.reset();
  const auto refused =
      Filesystem::open(*scene.backend, {.metadata_directory = scene.metadata.get()});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ENOTDIR);
  FsdaxOptions store;
  store.directory.reset(
      ::open((scene.directory.path() + "/data").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  store.read_only = true;  // or it would want to make the directory
  const auto backend = std::move(*make_fsdax(std::move(store)));
  const auto taken =
      Filesystem::open(*backend, {.metadata_directory = scene.metadata.get(), .takeover = true});
  REQUIRE(taken);
  CHECK((*taken)->recovery().unlisted.contains(name + 1));
  CHECK((*taken)->recovery().lost == std::vector<std::string>{"f"});
}
