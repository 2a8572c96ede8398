// SPDX-License-Identifier: BSD-3-Clause
// Records that no request can cause. A journal with correct checksums may still have them.
#include <linux/fs.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "fs/namespace.hpp"
#include "support/namespace_shape.hpp"
#include "support/temp.hpp"

using namespace efs;
using test::check_shape;

TEST_CASE(
    "records that no request can have asked for are refused and leave the namespace as it was",
    "[image]") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  fs::Namespace names(0755, 0, 0, 0);
  const auto ino = [&] {
    return random() % 12;
  };
  const auto name = [&]() -> std::string {
    static constexpr const char* all[] = {"a", "b", "c", "", ".", "..", "x/y"};
    return all[random() % 20 < 3 ? 3 + random() % 4 : random() % 3];
  };
  const auto type = [&]() -> std::uint32_t {
    static constexpr std::uint32_t all[] = {S_IFDIR, S_IFREG, S_IFLNK, S_IFIFO, 0, 0170000};
    return all[random() % 10 < 8 ? random() % 2 : random() % 6] | 0644;
  };
  int applied = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    fs::Record record;
    switch (random() % 10) {
      case 0:
      case 1:
        record = fs::MakeNode{.ino = random() % 4 == 0 ? ino() : 2 + random() % 60,
                              .parent = ino(),
                              .mode = type(),
                              .staged = static_cast<std::uint8_t>(random() % 3),
                              .name = name()};
        break;
      case 2: record = fs::Link{.ino = ino(), .parent = ino(), .name = name()}; break;
      case 3:
      case 4: record = fs::Unlink{.parent = ino(), .name = name()}; break;
      case 5:
        record = fs::Rename{
            .parent = ino(),
            .new_parent = ino(),
            .flags = random() % 2 == 0 ? 0U : static_cast<std::uint32_t>(RENAME_EXCHANGE),
            .name = name(),
            .new_name = name()};
        break;
      case 6: record = fs::SetAttributes{.ino = ino(), .mode = type()}; break;
      case 7:
        record = fs::SetStaging{.ino = ino(),
                                .keep = static_cast<std::uint8_t>(random() % 4),
                                .saved = 1,
                                .saved_path = name()};
        break;
      case 8: record = fs::Replace{.ino = ino(), .parent = ino(), .name = name()}; break;
      default: record = fs::Settled{std::string(random() % 20, 'x')}; break;
    }
    (names.apply(record) ? applied : refused) += 1;
    for (const auto orphan : names.orphans()) {
      names.destroy(orphan);
    }
    check_shape(names);
  }
  CHECK(applied > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("only a regular file can be remote, and be fetched once", "[image]") {
  fs::Namespace names(0755, 0, 0, 0);
  fs::MakeRemote remote;
  remote.ino = 7;
  remote.parent = fs::root_ino;
  remote.mode = S_IFREG | 0644;
  remote.dirty = 0;
  remote.staged = 1;
  remote.name = "remote";
  remote.version.size = 10;
  const auto is_refused = [&](auto change) {
    fs::MakeRemote other = remote;
    change(other);
    return !names.apply(other);
  };
  CHECK(is_refused([](auto& other) { other.mode = S_IFDIR | 0755; }));
  CHECK(is_refused([](auto& other) { other.evictable = 2; }));
  CHECK(is_refused([](auto& other) { other.version.size = UINT64_MAX; }));
  CHECK(is_refused([](auto& other) { other.accepts = 2; }));
  CHECK(is_refused([](auto& other) { other.room = UINT64_MAX; }));
  CHECK_FALSE(names.apply(fs::Fetched{.ino = 7}));
  CHECK_FALSE(names.apply(fs::NewVersion{.ino = 7}));
  REQUIRE(names.apply(remote));
  CHECK_FALSE(names.apply(fs::NewVersion{.ino = 7}));  // it accepts none
  CHECK(names.remote_files() == 1);
  CHECK(names.remote_bytes() == 10);
  CHECK(names.remote_below(names.root()) == std::vector<std::uint64_t>{7});
  REQUIRE(names.apply(fs::Fetched{.ino = 7}));
  CHECK(names.remote_files() == 0);
  CHECK_FALSE(names.apply(fs::Fetched{.ino = 7}));
  const fs::Evicted evicted{.ino = 7, .version = remote.version, .source = "remote"};
  REQUIRE(names.apply(evicted));
  CHECK(names.remote_bytes() == 10);
  CHECK(names.remote_room() == 0);
  CHECK_FALSE(names.apply(evicted));
  REQUIRE(names.apply(fs::Fetched{.ino = 7}));
  CHECK_FALSE(names.apply(fs::Evicted{.ino = fs::root_ino}));
  REQUIRE(names.apply(fs::SetStaging{.ino = 7, .dirty = 1}));
  CHECK_FALSE(names.apply(evicted));
  remote.ino = 8;
  remote.name = "other";
  REQUIRE(names.apply(remote));
  REQUIRE(names.apply(fs::Unlink{.parent = fs::root_ino, .name = "other"}));
  names.destroy(8);
  CHECK(names.remote_files() == 0);
  CHECK(names.remote_bytes() == 0);
  // as a snapshot may have it: without an origin, and changed
  remote.staged = 0;
  remote.dirty = 1;
  remote.name = "";
  REQUIRE(names.apply(remote));
  CHECK(names.remote_files() == 1);
}

TEST_CASE("a move that cannot be is refused", "[image]") {
  fs::Namespace names(0755, 0, 0, 0);
  for (const std::uint64_t ino : {7, 8}) {
    REQUIRE(names.apply(fs::MakeNode{
        .ino = ino, .parent = fs::root_ino, .mode = S_IFREG | 0644, .name = std::to_string(ino)}));
  }
  CHECK_FALSE(names.apply(fs::Moved{.ino = 9, .container = 20}));
  CHECK_FALSE(names.apply(fs::Moved{.ino = fs::root_ino, .container = 20}));
  CHECK_FALSE(names.apply(fs::Moved{.ino = 7, .container = 8}));
  CHECK_FALSE(names.apply(fs::Moved{.ino = 7}));
  CHECK(names.find(7)->container() == 7);
  REQUIRE(names.apply(fs::Moved{.ino = 7, .container = 20}));
  CHECK(names.find(7)->container() == 20);
  CHECK(names.next_unused() == 21);
  CHECK_FALSE(names.apply(fs::Pinned{.ino = fs::root_ino, .pinned = 1}));
  CHECK_FALSE(names.apply(fs::Pinned{.ino = 7, .pinned = 2}));
  CHECK(names.apply(fs::Pinned{.ino = 7, .pinned = 1}));
}

TEST_CASE("a symbolic link without a target is refused", "[image]") {
  fs::Namespace names(0755, 0, 0, 0);
  CHECK_FALSE(names.apply(
      fs::MakeNode{.ino = 7, .parent = fs::root_ino, .mode = S_IFLNK | 0777, .name = "link"}));
  CHECK(names.find(7) == nullptr);
  CHECK(names.apply(fs::MakeNode{
      .ino = 7, .parent = fs::root_ino, .mode = S_IFLNK | 0777, .name = "link", .target = "to"}));
}

TEST_CASE(
    "a name whose place in its directory another one has, or that no place is left for, is refused",
    "[image]") {
  fs::Namespace names(0755, 0, 0, 0);
  REQUIRE(names.apply(fs::MakeNode{
      .ino = 7, .parent = fs::root_ino, .mode = S_IFREG | 0644, .cookie = 5, .name = "a"}));
  CHECK_FALSE(names.apply(fs::MakeNode{
      .ino = 8, .parent = fs::root_ino, .mode = S_IFREG | 0644, .cookie = 5, .name = "b"}));
  CHECK_FALSE(names.apply(fs::Link{.ino = 7, .parent = fs::root_ino, .cookie = 5, .name = "b"}));
  CHECK_FALSE(
      names.apply(fs::Link{.ino = 7, .parent = fs::root_ino, .cookie = UINT64_MAX, .name = "b"}));
  CHECK_FALSE(names.apply(fs::NextCookie{.ino = fs::root_ino, .next = UINT64_MAX}));
  CHECK(names.root().directory->size() == 1);
  REQUIRE(names.apply(fs::Link{.ino = 7, .parent = fs::root_ino, .cookie = 6, .name = "b"}));
  std::set<std::string> listed;
  names.root().directory->for_each_after(
      0, [&](const std::string& name, const auto&) { return listed.insert(name).second; });
  CHECK(listed == std::set<std::string>{"a", "b"});
}

TEST_CASE(
    "what is dirty is not settled, whatever a record says, and what is settled is so after a "
    "second snapshot",
    "[image]") {
  fs::Namespace names(0755, 0, 0, 0);
  REQUIRE(names.apply(fs::MakeNode{.ino = 7,
                                   .parent = fs::root_ino,
                                   .mode = S_IFREG | 0644,
                                   .dirty = 1,
                                   .staged = 2,
                                   .name = "dirty"}));
  REQUIRE(names.apply(fs::MakeNode{
      .ino = 8, .parent = fs::root_ino, .mode = S_IFREG | 0644, .dirty = 0, .name = "clean"}));
  REQUIRE(names.apply(fs::Settled{std::string("\10\0\0\0\0\0\0\0", 8)}));
  CHECK_FALSE(names.find(7)->settled);
  for (int snapshot = 0; snapshot < 2; ++snapshot) {
    fs::Namespace again(0755, 0, 0, 0);
    names.snapshot([&](const fs::Record& record) { REQUIRE(again.apply(record)); });
    names = std::move(again);
    CHECK(names.find(8)->settled);
  }
}
