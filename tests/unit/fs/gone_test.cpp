// SPDX-License-Identifier: BSD-3-Clause
// Removed inputs: their records are as durable as names, through every kind of recovery.
#include <catch2/catch_test_macros.hpp>

#include "fs/namespace.hpp"
#include "support/live_buffer.hpp"
#include "support/staged_file.hpp"

using namespace efs;
using fs::Over;
using test::LiveBuffer;

namespace {

constexpr fs::Origin version{.device = 1, .inode = 2, .size = 3, .mtime = 4, .ctime = 5};

void stage_one(LiveBuffer& buffer, const std::string& path, fs::Origin origin = version) {
  const auto ino = *test::begin_file(*buffer.staging);
  REQUIRE(test::publish_file(
      *buffer.staging, *buffer.backend,
      {.ino = ino, .path = path, .attributes = {.mode = 0644}, .origin = origin}));
}

std::string gone(LiveBuffer& buffer) {
  std::string paths;
  for (const auto& item : buffer.staging->gone()) {
    paths += item.path + " ";
  }
  return paths;
}

}  // namespace

TEST_CASE("what a job removes or renames is gone, also after a restart", "[fs][gone]") {
  LiveBuffer buffer;
  auto& fs = *buffer.filesystem;
  REQUIRE(buffer.staging->make_directory("d", {.mode = 0755}));
  REQUIRE(buffer.staging->make_directory("e", {.mode = 0755}));
  for (const auto* path : {"d/a", "d/b", "c", "x", "y"}) {
    stage_one(buffer, path);
  }
  REQUIRE(buffer.staging->make_symlink("l", "target", {}));
  CHECK(gone(buffer).empty());
  const auto d = buffer.ino("d");
  REQUIRE(fs.unlink({}, d, "a"));
  REQUIRE(fs.unlink({}, fs::root_ino, "l"));
  REQUIRE(fs.rename({}, {fs::root_ino, "d"}, {fs::root_ino, "moved"}, 0));
  REQUIRE(fs.rmdir({}, fs::root_ino, "e"));
  // y's inode goes; its name stays
  REQUIRE(fs.rename({}, {fs::root_ino, "x"}, {fs::root_ino, "y"}, 0));
  (void)buffer.write("new", "new");
  REQUIRE(fs.unlink({}, fs::root_ino, "new"));  // was never staged in
  REQUIRE(fs.unlink({}, fs::root_ino, "c"));
  (void)buffer.write("c", "another");  // a new file of an old name
  const std::string expected = "d d/a d/b e l x ";
  CHECK(gone(buffer) == expected);
  buffer.open();
  CHECK(gone(buffer) == expected);
  const auto items = buffer.staging->gone();
  CHECK(S_ISDIR(items[0].attributes.st_mode));
  CHECK(items[1].pfs.origin == version);
  CHECK(items[1].ino == 0);                                     // nowhere any more
  CHECK(items[2].ino == buffer.staging->find("moved/b")->ino);  // under another name
  CHECK(items[4].target == "target");
  // A file that gets its name back is not gone, and neither is one that is imported again.
  REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "moved"}, {fs::root_ino, "d"}, 0));
  stage_one(buffer, "d/a");
  CHECK(gone(buffer) == "e l x ");
  REQUIRE(buffer.staging->forget_gone({"l", "x"}));
  CHECK(gone(buffer) == "e ");
  buffer.open();
  CHECK(gone(buffer) == "e ");
}

TEST_CASE("a snapshot keeps what is gone, with its class and copy", "[fs][gone]") {
  fs::Namespace names(0755, 0, 0, 1);
  REQUIRE(names.apply(fs::MakeNode{.ino = 2,
                                   .parent = fs::root_ino,
                                   .mode = S_IFREG | 0644,
                                   .dirty = 0,
                                   .staged = 1,
                                   .origin = version,
                                   .name = "f",
                                   .origin_path = "f"}));
  fs::SetStaging staging = names.staging_of(*names.find(2));
  staging.keep = 2;
  staging.saved = 1;
  staging.copy = {.device = 9};
  staging.saved_path = "f";
  REQUIRE(names.apply(staging));
  REQUIRE(names.apply(fs::Rename{.parent = fs::root_ino,
                                 .new_parent = fs::root_ino,
                                 .time = 1,
                                 .name = "f",
                                 .new_name = "g"}));
  REQUIRE(names.apply(fs::Unlink{.parent = fs::root_ino, .time = 1, .name = "g"}));
  names.destroy(2);
  // And an existing inode that once had its name: the snapshot must still have the first.
  REQUIRE(names.apply(fs::MakeNode{
      .ino = 3, .parent = fs::root_ino, .mode = S_IFREG | 0644, .dirty = 1, .name = "f"}));
  fs::Namespace copy(0755, 0, 0, 1);
  names.snapshot([&](const fs::Record& record) {
    std::vector<std::byte> bytes;
    fs::encode(record, bytes);
    REQUIRE(copy.apply(**fs::decode(bytes)));
  });
  REQUIRE(copy.gone().contains("f"));
  const auto& input = copy.gone().at("f");
  CHECK(input.keep == fs::Keep::persistent);
  CHECK(input.origin == version);
  REQUIRE(input.saved);
  CHECK(input.saved->device == 9);
  CHECK_FALSE(copy.apply(fs::Gone{}));
}

TEST_CASE("what efs takes away itself is not gone", "[fs][gone]") {
  LiveBuffer buffer;
  for (const auto* path : {"unloaded", "outdated", "linked", "replaced"}) {
    stage_one(buffer, path);
  }
  const std::vector<std::string> names{"linked2"};
  REQUIRE(buffer.staging->link_files("linked", names, Over::nothing));
  REQUIRE(buffer.staging->remove_clean("unloaded"));
  REQUIRE(buffer.staging->remove("outdated"));
  REQUIRE(buffer.staging->remove("linked"));
  CHECK(gone(buffer).empty());
  REQUIRE(buffer.staging->remove_clean("linked2"));
  const auto ino = *test::begin_file(*buffer.staging);
  REQUIRE(buffer.staging->publish_over(
      {.ino = ino, .path = "replaced", .attributes = {.mode = 0644}, .origin = version},
      Over::anything));
  CHECK(gone(buffer).empty());
  REQUIRE(buffer.staging->remove_clean("replaced"));
  CHECK(gone(buffer).empty());
  buffer.open();
  CHECK(gone(buffer).empty());
}

TEST_CASE("an input whose place was taken is not missed when its follower is unloaded",
          "[fs][gone]") {
  LiveBuffer buffer;
  stage_one(buffer, "removed");
  stage_one(buffer, "kept");
  constexpr fs::Origin copy{.device = 1, .inode = 7, .size = 3, .mtime = 8, .ctime = 9};
  for (const auto* name : {"removed", "kept"}) {
    const auto ino = buffer.write("new", "new");
    REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "new"}, {fs::root_ino, name}, 0));
    REQUIRE(*buffer.staging->set_saved(ino, name, *buffer.staging->edits(ino), {copy, true}));
  }
  REQUIRE(buffer.staging->remove_clean("removed"));
  REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "kept"));
  for (const bool again : {false, true}) {
    if (again) {
      buffer.open();
    }
    CHECK(gone(buffer) == "kept ");
    CHECK(buffer.staging->gone().front().pfs.saved ==
          copy);  // the exported version would be removed
  }
}

TEST_CASE("one of several names is gone while the file lives", "[fs][gone]") {
  LiveBuffer buffer;
  stage_one(buffer, "a");
  const std::vector<std::string> names{"b", "c"};
  REQUIRE(buffer.staging->link_files("a", names, Over::nothing));
  REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "b"));
  CHECK(gone(buffer) == "b ");
  CHECK(buffer.staging->gone().front().pfs.linked);
  REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "c"));
  REQUIRE(buffer.staging->forget_gone({"b", "c"}));
  CHECK(gone(buffer).empty());
  CHECK(
      buffer.staging->find("a")->pfs.linked);  // the PFS's file lost names, which changed its ctime
  REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "a"));
  buffer.open();
  CHECK(gone(buffer) == "a ");
}

TEST_CASE("a further name that could not be made is not gone", "[fs][gone]") {
  LiveBuffer buffer;
  stage_one(buffer, "a");
  (void)buffer.write("c", "the job's own");
  const std::vector<std::string> names{"b", "c", "d"};
  CHECK(buffer.staging->link_files("a", names, Over::nothing).error().code == EEXIST);
  CHECK(gone(buffer).empty());
  CHECK(buffer.staging->find("b")->pfs.origin == version);
  CHECK_FALSE(buffer.staging->find("b")->pfs.dirty);
  REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "c"));
  buffer.open();
  CHECK(gone(buffer).empty());
}

TEST_CASE("a further name that is loaded again is gone with the version that was loaded",
          "[fs][gone]") {
  LiveBuffer buffer;
  stage_one(buffer, "b");
  REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "b"));
  fs::Origin later = version;
  later.mtime = 40;
  stage_one(buffer, "a", later);
  const std::vector<std::string> names{"b"};
  REQUIRE(buffer.staging->link_files("a", names, Over::nothing));
  REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "b"));
  REQUIRE(gone(buffer) == "b ");
  CHECK(buffer.staging->gone().front().pfs.origin == later);
}

TEST_CASE("a renamed file that was brought out in place is still gone under its old name",
          "[fs][gone]") {
  LiveBuffer buffer;
  stage_one(buffer, "a");
  REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "a"}, {fs::root_ino, "b"}, 0));
  REQUIRE(buffer.staging->mark_saved("b", {.device = 9, .inode = 9}, true));
  CHECK(gone(buffer) == "a ");
  CHECK(buffer.staging->find("b")->pfs.origin.has_value());
  REQUIRE(buffer.staging->forget_gone({"a"}));
  CHECK(gone(buffer).empty());
  CHECK(buffer.staging->find("b")->pfs.origin.has_value());
}

TEST_CASE(
    "a directory that was brought out in place keeps what was noted of the PFS's, and under "
    "another name counts as that one's",
    "[fs][gone]") {
  LiveBuffer buffer;
  REQUIRE(buffer.staging->make_directory("d", {.mode = 0755}));
  REQUIRE(buffer.staging->record_directory("d", 17));
  REQUIRE(buffer.staging->mark_saved("d", {.device = 9, .inode = 9, .size = 4096}, true));
  CHECK(buffer.staging->find("d")->pfs.origin == fs::Origin{.size = 17});
  REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "d"}, {fs::root_ino, "e"}, 0));
  CHECK_FALSE(buffer.staging->find("e")->pfs.origin.has_value());
  REQUIRE(buffer.staging->mark_saved("e", {.device = 9, .inode = 10, .size = 4096}, true));
  CHECK(gone(buffer) == "d ");
  CHECK(buffer.staging->find("e")->pfs.origin == fs::Origin{});  // nothing is known of it
}

TEST_CASE("of a removed input whose copy is gone, too, stays that it was staged in", "[fs][gone]") {
  LiveBuffer buffer;
  stage_one(buffer, "a");
  stage_one(buffer, "b");
  REQUIRE(buffer.staging->mark_saved("a", {.device = 9, .inode = 9}, false));
  for (const char* name : {"a", "b"}) {
    REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, name));
  }
  const auto before = buffer.staging->gone();
  REQUIRE(before.size() == 2);
  CHECK(before.front().pfs.saved.has_value());
  REQUIRE(buffer.staging->forget_copies({"a", "b", "never was"}));
  for (int round = 0; round < 2; ++round, buffer.open()) {  // also for a successor
    const auto items = buffer.staging->gone();
    REQUIRE(items.size() == 2);
    CHECK(items.front().path == "a");
    CHECK_FALSE(items.front().pfs.saved.has_value());
    CHECK(items.front().pfs.origin == before.front().pfs.origin);
  }
}

TEST_CASE("extended attributes of a staged directory stay through its second round of times",
          "[fs][xattr]") {
  LiveBuffer buffer;
  const std::string acl = "a list";  // no code here parses it
  REQUIRE(buffer.staging->make_directory("d", {.mode = 0750}));
  REQUIRE(buffer.staging->set_xattrs(
      "d", {{"user.x", "1"}, {"user.y", "2"}, {"system.posix_acl_default", "v"}}));
  REQUIRE(buffer.staging->set_xattrs("d", {{"user.x", "3"}, {"system.posix_acl_access", acl}}));
  REQUIRE(buffer.staging->make_directory("d", {.mode = 0750, .mtime = 7}));
  buffer.open();
  const auto item = *buffer.staging->find("d");
  CHECK(item.xattrs ==
        std::map<std::string, std::string>{{"user.x", "3"}, {"system.posix_acl_access", acl}});
  CHECK_FALSE(item.pfs.dirty);
  CHECK((item.attributes.st_mode & 07777) == 0750);
}

TEST_CASE("what took the name of an input says whose it was", "[fs][gone]") {
  LiveBuffer buffer;
  auto& fs = *buffer.filesystem;
  constexpr auto root = fs::root_ino;
  const auto replaced = [&](const std::string& path) {
    return buffer.staging->walk(path)->front().pfs.replaced;
  };
  for (const auto* path : {"over", "removed", "moved", "x", "y"}) {
    stage_one(buffer, path);
  }
  REQUIRE(buffer.staging->make_symlink("link", "target", {}));
  CHECK(replaced("over") == nullptr);
  (void)buffer.write("new", "new");
  REQUIRE(fs.rename({}, {root, "new"}, {root, "over"}, 0));
  REQUIRE(fs.unlink({}, root, "removed"));
  REQUIRE(fs.unlink({}, root, "link"));
  REQUIRE(fs.rename({}, {root, "moved"}, {root, "moved.old"}, 0));
  REQUIRE(fs.rename({}, {root, "x"}, {root, "y"}, RENAME_EXCHANGE));
  for (const auto* path : {"removed", "link", "moved", "own"}) {
    (void)buffer.write(path, "new");
  }
  for (const bool again : {false, true}) {
    if (again) {
      buffer.open();
    }
    for (const auto* path : {"over", "removed", "moved", "x", "y"}) {
      INFO(path);
      REQUIRE(replaced(path) != nullptr);
      CHECK(replaced(path)->origin == version);
    }
    REQUIRE(replaced("link") != nullptr);
    CHECK(replaced("link")->target == "target");
    CHECK(replaced("own") == nullptr);
    CHECK(replaced("moved.old") == nullptr);
  }
}

TEST_CASE("a result that took an input's name is known to the one that takes its own",
          "[fs][gone]") {
  LiveBuffer buffer;
  constexpr fs::Origin copy{.device = 1, .inode = 7, .size = 3, .mtime = 8, .ctime = 9};
  const auto replaced = [&] {
    return buffer.staging->walk("a")->front().pfs.replaced;
  };
  for (const bool lives_on : {false, true}) {
    stage_one(buffer, "a");
    if (lives_on) {
      REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "a"}, {fs::root_ino, "old"}, 0));
    } else {
      REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "a"));
    }
    (void)buffer.write("a", "first");
    REQUIRE(buffer.staging->mark_saved("a", copy, true, replaced().get()));
    (void)buffer.write("new", "second");
    REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "new"}, {fs::root_ino, "a"}, 0));
    if (lives_on) {
      buffer.open();
    }
    REQUIRE(replaced() != nullptr);
    CHECK(replaced()->saved == copy);
    REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "a"));
    REQUIRE(buffer.staging->forget_gone({"a"}));
  }
}

TEST_CASE("the other names of a changed file stay changed when the one that was brought out goes",
          "[fs][gone]") {
  LiveBuffer buffer;
  stage_one(buffer, "a");
  (void)buffer.write("a", "new");
  REQUIRE(buffer.filesystem->link({}, buffer.ino("a"), fs::root_ino, "c"));
  REQUIRE(buffer.staging->mark_saved("c", {.device = 9, .inode = 9}, false));
  CHECK(buffer.staging->find("a")->pfs.dirty);
  CHECK_FALSE(buffer.staging->find("c")->pfs.dirty);
  REQUIRE(buffer.staging->remove_clean("c"));
  CHECK(buffer.staging->find("a")->pfs.dirty);
  buffer.open();
  CHECK(buffer.staging->find("a")->pfs.dirty);
}
