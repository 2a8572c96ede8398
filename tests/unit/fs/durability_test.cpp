// SPDX-License-Identifier: BSD-3-Clause
// The durability of each change, checked by the system calls on a real directory: containers,
// journal and names in the order of the rules in src/store/README.md. (tests/crash proves the order
// itself on its own medium and backend.)
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/containers.hpp"
#include "support/durable_calls.hpp"
#include "support/staged_file.hpp"
#include "support/temp.hpp"

namespace efs::durability_test {
namespace {

using fs::Filesystem;
using fs::root_ino;
using test::DurableCall;
using test::DurableCalls;

struct Scene {
  explicit Scene(bool persistent, std::uint64_t smallest_compaction = 8u << 20)
      : memory(persistent), backend(test::open_containers(path)) {
    const auto wanted = persistent ? Durability::cache_line : Durability::page;
    if (backend->durability() != wanted) {
      SKIP(path << " is no place for this test: " << backend->description());
    }
    filesystem =
        std::move(*Filesystem::open(*backend, {.metadata_directory = metadata.get(),
                                               .smallest_compaction = smallest_compaction}));
  }

  std::string directory_of(std::uint64_t ino) const {
    char name[8];
    std::snprintf(name, sizeof name, "%02x", static_cast<unsigned>(ino % 256));
    return path + "/data/" + name;
  }

  std::string container_of(std::uint64_t ino) const {
    char name[24];
    std::snprintf(name, sizeof name, "/%016llx", static_cast<unsigned long long>(ino));
    return directory_of(ino) + name;
  }

  // Makes a file with content and without references of the kernel.
  std::uint64_t file(const std::string& name) {
    const auto made = filesystem->make_node({}, root_ino, name, S_IFREG | 0644, 0);
    REQUIRE(made);
    REQUIRE(filesystem->write({}, made->ino, std::as_bytes(std::span(name)), 0) == name.size());
    (void)filesystem->forget(made->ino, 1);
    return made->ino;
  }

  std::uint64_t staged_file(const std::string& name) {
    fs::Staging staging(*filesystem);
    const auto begun = staging.begin_open_file();
    REQUIRE(begun);
    REQUIRE(begun->container->write(std::as_bytes(std::span(name)), 0) == name.size());
    REQUIRE(test::publish_file(staging, *backend,
                               {.ino = begun->ino,
                                .path = name,
                                .attributes = {.mode = 0644, .mtime = 5},
                                .origin = {.size = name.size()}}));
    return begun->ino;
  }

  const test::PersistentMemory memory;
  const test::TempDirectory directory;
  const std::string path = std::filesystem::canonical(directory.path());
  const std::string journal = path + "/journal";
  const UniqueFd metadata = directory.open();
  const std::unique_ptr<Backend> backend;
  std::unique_ptr<Filesystem> filesystem;
};

// The data of a file are durable before its record, and the record before the reply.
void check_file_first(const Scene& scene, std::uint64_t ino, const DurableCalls& noted,
                      const std::vector<test::DurableEvent>& then) {
  const auto calls = noted.so_far();
  INFO(text_of(calls));
  for (const auto& first :
       {test::syncs(scene.container_of(ino)), test::syncs(scene.directory_of(ino))}) {
    auto events = then;
    events.insert(events.begin(), first);
    CHECK(disorder(calls, events) == "");
  }
}

void check_journal_synced(const Scene& scene, const DurableCalls& noted) {
  CHECK(left_behind(noted.so_far(), test::stores_to(scene.journal), test::syncs(scene.journal)) ==
        "");
}

// A change of names, done to what make_all() made.
struct Change {
  std::string name;
  std::function<Status(Filesystem&)> run;
};

std::uint64_t inode_at(Filesystem& filesystem, const std::string& name) {
  const auto found = filesystem.lookup(root_ino, name);
  REQUIRE(found);
  (void)filesystem.forget(found->ino, 1);
  return found->ino;
}

void make_all(Scene& scene) {
  for (const char* name : {"f", "g", "h"}) {
    scene.file(name);
  }
  REQUIRE(scene.filesystem->make_node({}, root_ino, "d", S_IFDIR | 0755, 0));
}

Status status_of(const auto& result) {
  return result ? Status{} : std::unexpected(result.error());
}

std::vector<Change> changes() {
  return {{"create",
           [](Filesystem& f) {
             return status_of(f.make_node({}, root_ino, "new", S_IFREG | 0644, 0));
           }},
          {"mkdir",
           [](Filesystem& f) {
             return status_of(f.make_node({}, root_ino, "e", S_IFDIR | 0755, 0));
           }},
          {"symlink",
           [](Filesystem& f) {
             return status_of(f.make_symlink({}, root_ino, "s", "target"));
           }},
          {"link",
           [](Filesystem& f) {
             return status_of(f.link({}, inode_at(f, "f"), root_ino, "l"));
           }},
          {"rename",
           [](Filesystem& f) {
             return f.rename({}, {root_ino, "f"}, {root_ino, "moved"}, 0);
           }},
          {"rename over a file",
           [](Filesystem& f) {
             return f.rename({}, {root_ino, "f"}, {root_ino, "g"}, 0);
           }},
          {"exchange",
           [](Filesystem& f) {
             return f.rename({}, {root_ino, "f"}, {root_ino, "g"}, RENAME_EXCHANGE);
           }},
          {"chmod",
           [](Filesystem& f) {
             return status_of(f.setattr({}, inode_at(f, "f"), {.mode = 0600}));
           }},
          {"setxattr",
           [](Filesystem& f) {
             return f.setxattr({}, inode_at(f, "f"), "user.a", "value", 0);
           }},
          {"unlink",
           [](Filesystem& f) {
             return f.unlink({}, root_ino, "f");
           }},
          {"rmdir", [](Filesystem& f) {
             return f.rmdir({}, root_ino, "d");
           }}};
}

std::string bytes_of(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// How many bytes of the file have changed since it was `before`, by whatever way, and may be lost.
std::uint64_t lost_of_changed(const std::string& path, const std::string& before,
                              std::span<const DurableCall> calls) {
  constexpr std::size_t page = 4096;
  const std::string now = bytes_of(path);
  REQUIRE(now.size() == before.size());
  REQUIRE((now != before));
  std::uint64_t lost = 0;
  for (std::size_t at = 0; at < now.size(); at += page) {
    if (now.compare(at, page, before, at, page) == 0) {
      continue;
    }
    for (std::size_t i = at; i < std::min(at + page, now.size()); ++i) {
      if (now[i] != before[i]) {
        lost += exposed(calls, path, i, i + 1);
      }
    }
  }
  return lost;
}

}  // namespace

TEST_CASE("fsync of a new file: its container and the name of that, then the journal", "[fs]") {
  Scene scene(false);
  const bool data_only = GENERATE(false, true);
  const DurableCalls calls;
  const auto ino = scene.file("f");
  REQUIRE(scene.filesystem->fsync(ino, data_only));
  check_file_first(scene, ino, calls, {test::syncs(scene.journal)});
  check_journal_synced(scene, calls);
  if (!data_only) {
    CHECK(happens(calls.so_far(), test::syncs_all_of(scene.container_of(ino))));
  }
}

TEST_CASE("fsync on persistent memory syncs the container and its name", "[fs]") {
  Scene scene(true);
  const auto ino = scene.file("f");
  const DurableCalls calls;
  REQUIRE(scene.filesystem->fsync(ino, false));
  check_file_first(scene, ino, calls, {});
}

TEST_CASE(
    "a rename over a file: the new content before its record, that before the old container goes",
    "[fs]") {
  Scene scene(false);
  const auto old = scene.file("old"), moved = scene.file("new");
  const DurableCalls calls;
  REQUIRE(scene.filesystem->rename({}, {root_ino, "new"}, {root_ino, "old"}, 0));
  CHECK_FALSE(happens(calls.so_far(), test::removes(scene.container_of(old))));
  REQUIRE(scene.filesystem->fsync_metadata());
  check_file_first(scene, moved, calls,
                   {test::stores_to(scene.journal), test::syncs(scene.journal),
                    test::removes(scene.container_of(old))});
  check_journal_synced(scene, calls);
}

TEST_CASE(
    "a rename over a file on persistent memory: the new content before its record, that before the "
    "old container goes",
    "[fs]") {
  Scene scene(true);
  const auto old = scene.file("old"), moved = scene.file("new");
  const auto removal = test::removes(scene.container_of(old));
  const std::string before = bytes_of(scene.journal);
  const DurableCalls noted;
  REQUIRE(scene.filesystem->rename({}, {root_ino, "new"}, {root_ino, "old"}, 0));
  check_file_first(scene, moved, noted, {test::stores_to(scene.journal), removal});
  const auto calls = noted.so_far();
  CHECK(lost_of_changed(scene.journal, before, up_to(calls, removal)) == 0);
}

TEST_CASE(
    "in the page cache a change is in the journal when it is answered, and durable after a sync of "
    "any directory",
    "[fs]") {
  for (const auto& change : changes()) {
    Scene scene(false);
    make_all(scene);
    REQUIRE(scene.filesystem->fsync_metadata());
    const DurableCalls calls;
    REQUIRE(change.run(*scene.filesystem));
    INFO(change.name << "\n" << text_of(calls.so_far()));
    CHECK(happens(calls.so_far(), test::stores_to(scene.journal)));
    REQUIRE(scene.filesystem->fsync_metadata());
    check_journal_synced(scene, calls);
  }
}

TEST_CASE("on persistent memory a change is durable when it is answered", "[fs]") {
  for (const auto& change : changes()) {
    Scene scene(true);
    make_all(scene);
    const std::string before = bytes_of(scene.journal);
    const DurableCalls calls;
    REQUIRE(change.run(*scene.filesystem));
    INFO(change.name << "\n" << text_of(calls.so_far()));
    CHECK(lost_of_changed(scene.journal, before, calls.so_far()) == 0);
  }
}

TEST_CASE("in the page cache the container of a removed file goes after its record is durable",
          "[fs]") {
  Scene scene(false);
  const auto ino = scene.file("f");
  const DurableCalls calls;
  REQUIRE(scene.filesystem->unlink({}, root_ino, "f"));
  CHECK_FALSE(happens(calls.so_far(), test::removes(scene.container_of(ino))));
  scene.filesystem->tend();
  INFO(text_of(calls.so_far()));
  CHECK(disorder(calls.so_far(), {test::stores_to(scene.journal), test::syncs(scene.journal),
                                  test::removes(scene.container_of(ino))}) == "");
}

TEST_CASE("what was staged in is booked as durable after its containers, and that is synced",
          "[fs]") {
  const bool persistent = GENERATE(false, true);
  Scene scene(persistent);
  const std::array files{scene.staged_file("a"), scene.staged_file("b")};
  const std::string before = bytes_of(scene.journal);
  const DurableCalls calls;
  REQUIRE(scene.filesystem->settle());
  for (const auto ino : files) {
    check_file_first(scene, ino, calls, {test::stores_to(scene.journal)});
  }
  CHECK(lost_of_changed(scene.journal, before, calls.so_far()) == 0);
  for (const auto ino : files) {
    CHECK(happens(calls.so_far(), test::syncs_all_of(scene.container_of(ino))));
  }
}

TEST_CASE(
    "a staged file is synced before a record lets it get another name, another state, or be booked",
    "[fs]") {
  const bool persistent = GENERATE(false, true);
  const std::vector<Change> all{{"rename",
                                 [](Filesystem& f) {
                                   return f.rename({}, {root_ino, "a"}, {root_ino, "b"}, 0);
                                 }},
                                {"link",
                                 [](Filesystem& f) {
                                   return status_of(f.link({}, inode_at(f, "a"), root_ino, "b"));
                                 }},
                                {"open for writing",
                                 [](Filesystem& f) {
                                   return status_of(f.open({}, inode_at(f, "a"), O_WRONLY));
                                 }},
                                {"fsync", [](Filesystem& f) {
                                   return f.fsync(inode_at(f, "a"), false);
                                 }}};
  for (const auto& change : all) {
    Scene scene(persistent);
    const auto ino = scene.staged_file("a");
    const DurableCalls calls;
    REQUIRE(change.run(*scene.filesystem));
    INFO(change.name);
    check_file_first(scene, ino, calls, {test::stores_to(scene.journal)});
  }
}

TEST_CASE("a snapshot is durable, then named, then the name is durable, and then records follow",
          "[fs]") {
  Scene scene(GENERATE(false, true), 1024);
  const std::string next = scene.journal + ".new";
  const auto switched = test::renames(next, scene.journal);
  const DurableCalls noted;
  int made = 0;
  while (!happens(noted.so_far(), switched) && made < 1000) {
    REQUIRE(
        scene.filesystem->make_node({}, root_ino, "d" + std::to_string(made++), S_IFDIR | 0755, 0));
  }
  REQUIRE(scene.filesystem->make_node({}, root_ino, "last", S_IFDIR | 0755, 0));
  const auto all = noted.so_far();
  INFO(text_of(all));
  const std::span<const DurableCall> before = up_to(all, switched),
                                     behind = std::span(all).subspan(before.size());
  CHECK(disorder(all, {test::stores_to(next), test::syncs(next), switched}) == "");
  CHECK(left_behind(before, test::stores_to(next), test::syncs(next)) == "");
  CHECK(disorder(behind, {switched, test::syncs(scene.path), test::stores_to(scene.journal)}) ==
        "");
}

}  // namespace efs::durability_test
