// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <set>
#include <sstream>

#include <catch2/catch_test_macros.hpp>
#include <future>

#include "fs/kernel_view.hpp"
#include "fs/namespace.hpp"
#include "support/live_buffer.hpp"
#include "support/open_handles.hpp"
#include "support/staged_file.hpp"

using namespace efs;
using fs::Keep;
using fs::Over;
using test::LiveBuffer;

namespace {

constexpr fs::Origin staged_version{.device = 1, .inode = 2, .size = 3, .mtime = 4, .ctime = 5};

std::uint64_t filled(LiveBuffer& buffer, const std::string& content) {
  const auto file = *buffer.staging->begin_open_file();
  CHECK(file.container->write(std::as_bytes(std::span(content)), 0) == content.size());
  return file.ino;
}

Status publish(LiveBuffer& buffer, const std::string& path, const std::string& content, Over over,
               const std::string& parts = {}) {
  const auto ino = filled(buffer, content);
  Status done = buffer.staging->publish_over({.ino = ino,
                                              .path = path,
                                              .attributes = {.mode = 0644, .atime = 7, .mtime = 8},
                                              .origin = staged_version},
                                             over, parts);
  if (!done) {
    buffer.staging->abandon(ino);
  }
  return done;
}

// Makes a request on another thread during every call. The request must not wait for a lock of the
// caller.
struct AskingKernel final : fs::KernelView {
  explicit AskingKernel(fs::Filesystem& filesystem) : filesystem_(filesystem) {
    filesystem.attach(this);
  }

  ~AskingKernel() override { filesystem_.attach(nullptr); }

  void name_changed(std::uint64_t, const std::string& name) override {
    changed += name + " ";
    request();
  }

  void name_removed(std::uint64_t, const std::string& name, std::uint64_t, bool) override {
    removed += name + " ";
    request();
  }

  void name_doubted(std::uint64_t parent, const std::string& name, std::uint64_t ino) override {
    doubted += std::to_string(parent) + ":" + name + (ino != 0 ? " " : "? ");
    request();
  }

  void attributes_changed(std::uint64_t) override { request(); }

  void space_given_back(std::uint64_t) override {}

  void write_back(std::uint64_t) override {}

  void let_go(std::uint64_t) override { request(); }

  void container_removed(std::uint64_t, std::uint64_t) override {}

  bool removes_later() override { return false; }

  void removals_wait() override {}

  void release_space() override {}

  void await_received() override {}

  void request() {
    auto answered = std::async(std::launch::async, [this] {
      (void)filesystem_.make_node({}, fs::root_ino, "asked" + std::to_string(++asked),
                                  S_IFREG | 0600, 0);
    });
    // a lock is held
    if (answered.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      std::abort();
    }
  }

  fs::Filesystem& filesystem_;
  std::string changed, removed, doubted;
  int asked = 0;
};

}  // namespace

TEST_CASE("a published file takes the place of what it may, in one step, and of nothing else") {
  LiveBuffer buffer;
  REQUIRE(publish(buffer, "f", "one", Over::nothing));
  CHECK(publish(buffer, "f", "two", Over::nothing).error().code == EEXIST);
  CHECK(buffer.read("f") == "one");
  REQUIRE(publish(buffer, "f", "two", Over::clean));
  CHECK(buffer.read("f") == "two");
  CHECK(buffer.containers() == 1);
  CHECK_FALSE(buffer.staging->find("f")->pfs.dirty);

  buffer.write("f", "changed");
  CHECK(publish(buffer, "f", "three", Over::clean).error().code == EBUSY);
  CHECK(buffer.read("f") == "changed");
  REQUIRE(publish(buffer, "f", "three", Over::anything));
  CHECK(buffer.read("f") == "three");

  REQUIRE(buffer.filesystem->make_node({}, fs::root_ino, "d", S_IFDIR | 0755, 0));
  CHECK(publish(buffer, "d", "x", Over::anything).error().code == EISDIR);
  CHECK(publish(buffer, "nosuch/f", "x", Over::anything).error().code == ENOENT);
  CHECK(buffer.containers() == 1);
}

TEST_CASE(
    "what the user said of a name holds for what takes its place, unless that has a class of its "
    "own") {
  LiveBuffer buffer;
  for (const char* name : {"renamed", "own", "exchanged", "moved"}) {
    buffer.write(name, "old");
    REQUIRE(buffer.staging->set_keep(name, Keep::persistent));
    buffer.write(std::string(name) + ".tmp", "new");
  }
  REQUIRE(buffer.staging->set_keep("own.tmp", Keep::temporary));
  const auto rename = [&](const std::string& from, const std::string& to, unsigned flags) {
    REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, from}, {fs::root_ino, to}, flags));
  };
  rename("renamed.tmp", "renamed", 0);
  rename("own.tmp", "own", 0);
  rename("exchanged.tmp", "exchanged", RENAME_EXCHANGE);
  rename("moved.tmp", "moved on", 0);
  REQUIRE(publish(buffer, "loaded", "one", Over::nothing));
  REQUIRE(buffer.staging->set_keep("loaded", Keep::persistent));
  REQUIRE(publish(buffer, "loaded", "two", Over::clean));
  REQUIRE(publish(buffer, "in part", "one", Over::nothing, "0+1"));
  REQUIRE(publish(buffer, "in part", "whole", Over::clean));
  for (int round = 0; round < 2; ++round) {
    INFO("round " << round);
    const auto keep_of = [&](const std::string& name) {
      return buffer.staging->find(name)->keep;
    };
    CHECK(buffer.read("renamed") == "new");
    CHECK(keep_of("renamed") == Keep::persistent);
    CHECK(keep_of("own") == Keep::temporary);
    CHECK(keep_of("exchanged") == Keep::by_rule);
    CHECK(keep_of("exchanged.tmp") == Keep::persistent);
    CHECK(keep_of("moved on") == Keep::by_rule);
    CHECK(buffer.read("loaded") == "two");
    CHECK(keep_of("loaded") == Keep::persistent);
    CHECK(keep_of("in part") == Keep::by_rule);
    buffer.open();
  }
}

TEST_CASE("who has a replaced file open keeps it, and its container goes with him") {
  LiveBuffer buffer;
  REQUIRE(publish(buffer, "f", "old", Over::nothing));
  const auto old = buffer.filesystem->lookup(fs::root_ino, "f")->ino;
  REQUIRE(publish(buffer, "f", "new", Over::clean));
  std::string content(3, '\0');
  REQUIRE(buffer.filesystem->read(old, std::as_writable_bytes(std::span(content)), 0) == 3u);
  CHECK(content == "old");
  CHECK(buffer.filesystem->getattr(old)->attributes.st_nlink == 0);
  CHECK(buffer.containers() == 2);
  CHECK(buffer.filesystem->forget(old, 1).gone);
  CHECK(buffer.containers() == 1);
}

TEST_CASE("opens for writing are counted until they are released; each can be seen afterwards") {
  LiveBuffer buffer;
  const auto ino = buffer.write("f", "x");
  const auto before = buffer.staging->writers(ino);
  CHECK_FALSE(before->possible);
  const auto opened = buffer.filesystem->open({}, ino, O_WRONLY);
  REQUIRE(opened);
  CHECK(buffer.staging->writers(ino)->possible);
  CHECK(buffer.staging->writers(ino)->open == 1);
  CHECK(buffer.staging->writers(ino)->edits != before->edits);
  CHECK_FALSE(*buffer.staging->set_saved(ino, "f", before->edits, {staged_version, false}));
  CHECK(buffer.filesystem->release(opened->handle));
  CHECK_FALSE(buffer.staging->writers(ino)->possible);
  CHECK_FALSE(buffer.filesystem->release(opened->handle));  // a repeated one has no effect
  CHECK(buffer.staging->writers(ino)->open == 0);
  const auto quiet = buffer.staging->writers(ino)->edits;
  REQUIRE(buffer.filesystem->open({}, ino, O_RDONLY));
  CHECK(buffer.staging->writers(ino)->edits == quiet);
  REQUIRE(buffer.filesystem->setattr({}, ino, {.size = 0}));
  CHECK(buffer.staging->writers(ino)->edits != quiet);
}

TEST_CASE(
    "a mapping that outlives its descriptor is a writer; without it the kernel says that there is "
    "none") {
  LiveBuffer buffer;
  const auto ino = buffer.write("f", std::string(8192, 'x'));
  void* mapping = MAP_FAILED;
  {
    // As the kernel does for a program whose I/O passes through.
    REQUIRE(buffer.filesystem->open({}, ino, O_RDWR)->passthrough);
    const auto container = buffer.filesystem->container(ino);
    const std::string link = "/proc/self/fd/" + std::to_string(*(*container)->descriptor());
    const UniqueFd fd(::open(link.c_str(), O_RDWR | O_CLOEXEC));
    mapping = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(mapping != MAP_FAILED);
  }
  test::release(*buffer.filesystem, ino, O_RDWR);
  CHECK(buffer.staging->writers(ino)->open == 0);
  CHECK(buffer.staging->writers(ino)->possible);
  ::munmap(mapping, 8192);
  CHECK_FALSE(buffer.staging->writers(ino)->possible);
}

TEST_CASE("after a restart counts prove nothing, the kernel does") {
  LiveBuffer buffer;
  const auto ino = buffer.write("f", "x");
  const std::string path = [&] {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(buffer.directory.path() + "/data")) {
      if (entry.is_regular_file()) {
        return entry.path().string();
      }
    }
    return std::string();
  }();
  // one whose open the new process has not seen
  UniqueFd program(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(program);
  buffer.open();
  CHECK(buffer.staging->writers(ino)->possible);
  program.reset();
  CHECK_FALSE(buffer.staging->writers(ino)->possible);
}

TEST_CASE("a saved file is clean under its name until it changes") {
  LiveBuffer buffer;
  const auto ino = buffer.write("f", "x");
  CHECK(buffer.staging->find("f")->pfs.dirty);
  CHECK(buffer.staging->remove_clean("f").error().code == EBUSY);
  REQUIRE(buffer.staging->set_saved(ino, "f", buffer.staging->writers(ino)->edits,
                                    {staged_version, false}) == true);
  CHECK_FALSE(buffer.staging->find("f")->pfs.dirty);
  CHECK(buffer.staging->find("f")->pfs.saved == staged_version);
  CHECK_FALSE(buffer.staging->find("f")->pfs.origin);

  buffer.open();  // journalled
  CHECK_FALSE(buffer.staging->find("f")->pfs.dirty);
  CHECK(buffer.staging->find("f")->pfs.saved == staged_version);

  REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "f"}, {fs::root_ino, "g"}, 0));
  CHECK(buffer.staging->find("g")->pfs.dirty);
  REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "g"}, {fs::root_ino, "f"}, 0));
  buffer.write("f", "y");
  CHECK(buffer.staging->find("f")->pfs.dirty);
  CHECK(buffer.staging->remove_clean("f").error().code == EBUSY);
  REQUIRE(buffer.staging->set_saved(ino, "f", *buffer.staging->edits(ino),
                                    {staged_version, false}) == true);
  REQUIRE(buffer.filesystem->open({}, ino, O_WRONLY));
  CHECK_FALSE(buffer.staging->remove_clean("f"));
  test::release(*buffer.filesystem, ino, O_WRONLY);
  CHECK_FALSE(buffer.staging->remove_clean("f"));  // opened for writing: dirty
}

TEST_CASE("what is unchanged since it came in, under whatever name, and was asked for") {
  LiveBuffer buffer;
  REQUIRE(buffer.staging->make_directory("d", {.mode = 0755}));
  for (const auto* name : {"d/renamed", "a", "other", "changed"}) {
    REQUIRE(publish(buffer, name, "one", Over::nothing));
  }
  REQUIRE(publish(buffer, "parts", "one", Over::nothing, "0+2"));
  REQUIRE(buffer.staging->add_symlink("link", "a", {.mode = 0777}));
  (void)buffer.write("own", "x");
  (void)buffer.write("changed", "y");
  REQUIRE(buffer.filesystem->rename({}, {buffer.ino("d"), "renamed"}, {buffer.ino("d"), "now"}, 0));
  buffer.open();
  std::string asked;
  const auto items = buffer.staging->unchanged([&](const std::string& path, bool renamed) {
    return asked += path + (renamed ? " renamed " : " "), path != "other";
  });
  REQUIRE(items);
  REQUIRE(items->size() == 2);
  CHECK((items->at(0).path == "a" && items->at(1).path == "d/now"));
  for (const auto& item : *items) {
    CHECK((item.attributes.st_size == 3 && item.pfs.content == staged_version));
  }
  CHECK(asked.find("other ") != std::string::npos);
  CHECK(asked.find("a renamed") == std::string::npos);
  CHECK(asked.find("d/now renamed ") != std::string::npos);
  CHECK(asked.find("changed") == std::string::npos);
}

TEST_CASE("a look at names is what a walk says of them") {
  LiveBuffer buffer;
  REQUIRE(buffer.staging->make_directory("d", {.mode = 0755}));
  REQUIRE(buffer.staging->set_keep("d", Keep::persistent));
  for (const auto* name : {"d/a", "b"}) {
    REQUIRE(publish(buffer, name, "one", Over::nothing));
  }
  REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, "b"}, {fs::root_ino, "c"}, 0));
  (void)buffer.write("b", "the job's own");
  auto names = buffer.staging->names();
  std::ranges::sort(names);
  REQUIRE(names == std::vector<std::string>{"b", "c", "d", "d/a"});
  const std::vector<std::string> asked{"d/a", "nosuch/f", "b", "nosuch"};
  const auto items = buffer.staging->look(asked);
  REQUIRE((items && items->size() == 2));
  CHECK((items->at(0).path == "d/a" && items->at(0).keep == Keep::persistent &&
         items->at(0).keep_path == "d" && !items->at(0).pfs.dirty));
  CHECK((items->at(1).path == "b" && items->at(1).pfs.dirty &&
         items->at(1).attributes.st_size == 13));
  REQUIRE(items->at(1).pfs.replaced);
  CHECK(items->at(1).pfs.replaced->origin == staged_version);
}

TEST_CASE(
    "names that were staged in together are clean together, also after a restart and a snapshot") {
  LiveBuffer buffer;
  REQUIRE(buffer.staging->make_directory("d", {.mode = 0755}));
  REQUIRE(publish(buffer, "a", "one", Over::nothing));
  const std::vector<std::string> names{"d/b", "c"};
  REQUIRE(buffer.staging->link_files("a", names, Over::nothing));
  CHECK(buffer.staging->link_files("a", names, Over::nothing).error().code == EEXIST);
  CHECK(buffer.staging->link_files("nosuch", names, Over::anything).error().code == ENOENT);
  buffer.open();
  for (const auto* name : {"a", "d/b", "c"}) {
    const auto item = *buffer.staging->find(name);
    CHECK(item.ino == buffer.ino("a"));
    CHECK(item.pfs.origin == staged_version);
    CHECK(item.pfs.linked);
    CHECK_FALSE(item.pfs.dirty);
    CHECK(item.attributes.st_nlink == 3);
  }
  // After an export under one name the file is dirty under the others, because the PFS has their
  // old content.
  (void)buffer.write("a", "new");
  REQUIRE(buffer.staging->mark_saved("a", {.device = 9, .inode = 9}, true));
  CHECK_FALSE(buffer.staging->find("a")->pfs.dirty);
  CHECK(buffer.staging->find("c")->pfs.dirty);
  CHECK(buffer.staging->find("c")->pfs.origin.has_value());
  REQUIRE(buffer.staging->mark_saved("c", {.device = 9, .inode = 9}, true));
  CHECK_FALSE(buffer.staging->find("c")->pfs.dirty);
}

TEST_CASE(
    "until a copy has its name the one before is known, too: of the file, and of the input whose "
    "place it took") {
  const fs::Origin first{.device = 9, .inode = 9, .size = 3, .mtime = 1, .ctime = 1},
      second{.device = 9, .inode = 10, .size = 5, .mtime = 2, .ctime = 2};
  auto coming = second, third = second;
  coming.ctime = third.ctime = fs::Origin::any_ctime;
  third.inode = 11;
  for (const bool in_place : {true, false}) {
    for (const bool takes_place : {false, true}) {
      LiveBuffer buffer;
      REQUIRE(publish(buffer, "a", "old", Over::nothing));
      buffer.open();
      if (takes_place) {
        REQUIRE(buffer.filesystem->unlink({}, fs::root_ino, "a"));
      }
      (void)buffer.write("a", "new");
      const auto ino = buffer.ino("a");
      const auto edits = *buffer.staging->edits(ino);
      const auto note = [&](const fs::Origin& copy) {
        REQUIRE(buffer.staging->record_named(ino, "a", copy, in_place,
                                             buffer.staging->walk()->front().pfs.replaced.get()));
        const auto now = buffer.staging->walk()->front();
        CHECK(now.pfs.dirty);
        CHECK(now.pfs.saved == copy);
        return takes_place ? now.pfs.replaced->origin : *now.pfs.origin;
      };
      CHECK(note(coming) == staged_version);
      CHECK(note(first) == staged_version);
      CHECK(note(coming) == (in_place ? first : staged_version));
      CHECK(note(third) == (in_place ? first : staged_version));  // the second never had its name
      // a note is no change: the copy may still be booked as the file's
      CHECK(edits == *buffer.staging->edits(ino));
    }
  }
}

TEST_CASE("removal of a clean file frees its container when nobody has it open") {
  LiveBuffer buffer;
  REQUIRE(publish(buffer, "f", "x", Over::nothing));
  REQUIRE(publish(buffer, "g", "y", Over::nothing));
  const auto open = buffer.filesystem->lookup(fs::root_ino, "g")->ino;
  REQUIRE(buffer.staging->remove_clean("f"));
  REQUIRE(buffer.staging->remove_clean("g"));
  CHECK_FALSE(buffer.exists("f"));
  CHECK_FALSE(buffer.exists("g"));
  CHECK(buffer.containers() == 1);
  CHECK(buffer.filesystem->forget(open, 1).gone);
  CHECK(buffer.containers() == 0);
}

TEST_CASE(
    "who comes by a name that staging has just taken, to write, looks it up again; what the job "
    "removed can be opened again") {
  LiveBuffer buffer;
  for (const char* name : {"unloaded", "replaced", "removed"}) {
    REQUIRE(publish(buffer, name, "old", Over::nothing));
  }
  auto& filesystem = *buffer.filesystem;
  const auto known = [&](const char* name) {
    return filesystem.lookup(fs::root_ino, name)->ino;
  };
  const auto unloaded = known("unloaded"), replaced = known("replaced"), removed = known("removed");
  REQUIRE(buffer.staging->remove_clean("unloaded"));
  REQUIRE(publish(buffer, "replaced", "new", Over::clean));
  REQUIRE(filesystem.unlink({}, fs::root_ino, "removed"));
  for (const auto gone : {unloaded, replaced}) {
    for (const int flags : {O_WRONLY, O_RDWR}) {
      CHECK(filesystem.open({}, gone, flags).error().code == ESTALE);
    }
    CHECK(filesystem.setattr({}, gone, {.size = 0}).error().code == ESTALE);
    CHECK(filesystem.open({}, gone, O_RDONLY));
    CHECK(buffer.staging->writers(gone)->open == 0);
  }
  CHECK(filesystem.open({}, removed, O_RDWR));  // through /proc/self/fd
  CHECK(filesystem.setattr({}, removed, {.size = 0}));
}

TEST_CASE("who has what load --force replaced open for writing may go on") {
  LiveBuffer buffer;
  REQUIRE(publish(buffer, "f", "old", Over::nothing));
  const auto old = buffer.filesystem->lookup(fs::root_ino, "f")->ino;
  REQUIRE(buffer.filesystem->open({}, old, O_WRONLY));
  REQUIRE(publish(buffer, "f", "new", Over::anything));
  CHECK(buffer.filesystem->setattr({}, old, {.size = 1}));
  CHECK(buffer.filesystem->open({}, old, O_WRONLY).error().code == ESTALE);
}

TEST_CASE(
    "a class holds for what is below, unless that has one of its own, and survives a restart") {
  LiveBuffer buffer;
  const auto directory =
      buffer.filesystem->make_node({}, fs::root_ino, "d", S_IFDIR | 0755, 0)->ino;
  REQUIRE(buffer.filesystem->make_node({}, directory, "a", S_IFREG | 0644, 0));
  REQUIRE(buffer.filesystem->make_node({}, directory, "b", S_IFREG | 0644, 0));
  REQUIRE(buffer.staging->set_keep("d", Keep::temporary));
  REQUIRE(buffer.staging->set_keep("d/b", Keep::persistent));
  CHECK(buffer.staging->set_keep("nosuch", Keep::persistent).error().code == ENOENT);
  for (int round = 0; round < 2; ++round) {
    CHECK(buffer.staging->find("d/a")->keep == Keep::temporary);
    CHECK(buffer.staging->find("d/a")->keep_path == "d");
    CHECK(buffer.staging->find("d/b")->keep == Keep::persistent);
    const auto below = buffer.staging->walk("d");
    REQUIRE(below->size() == 3);
    CHECK(below->at(1).keep == Keep::temporary);
    CHECK(below->at(2).keep == Keep::persistent);
    buffer.open();
  }
  CHECK(buffer.staging->walk("d/nosuch").error().code == ENOENT);
  CHECK(buffer.staging->walk("d/a/x").error().code == ENOTDIR);
}

TEST_CASE("a snapshot keeps what staging keeps") {
  const auto fill = [](fs::Namespace& names) {
    REQUIRE(names.apply(fs::MakeNode{.ino = 2,
                                     .parent = 0,
                                     .mode = S_IFREG | 0644,
                                     .dirty = 0,
                                     .staged = 1,
                                     .origin = staged_version,
                                     .origin_path = "f"}));
    fs::SetStaging staging = names.staging_of(*names.find(2));
    staging.parts = "0+1";
    staging.keep = 1;
    staging.saved = 1;
    staging.copy = staged_version;
    staging.saved_path = "f";
    REQUIRE(names.apply(staging));
    REQUIRE(names.apply(fs::Replace{.ino = 2, .parent = fs::root_ino, .time = 9, .name = "f"}));
    fs::SetStaging root = names.staging_of(names.root());
    root.keep = 2;
    REQUIRE(names.apply(root));
  };
  fs::Namespace names(0755, 0, 0, 1);
  fill(names);
  fs::Namespace copy(0755, 0, 0, 1);
  names.snapshot([&](const fs::Record& record) {
    std::vector<std::byte> bytes;
    fs::encode(record, bytes);
    const auto decoded = fs::decode(bytes);
    REQUIRE(decoded);
    REQUIRE(copy.apply(**decoded));
  });
  const auto& entry = copy.files().of(2);
  CHECK(entry.parts == "0+1");
  CHECK(copy.find(2)->extra->keep == Keep::temporary);
  REQUIRE(entry.exported);
  CHECK(entry.exported->version == staged_version);
  REQUIRE(entry.imported);
  CHECK(entry.imported->version == staged_version);
  CHECK(copy.root().extra->keep == Keep::persistent);
  CHECK(copy.child(copy.root(), "f").value()->ino == 2);
  CHECK(copy.find(2)->nlink == 1);
  // a second name
  CHECK(copy.apply(fs::Replace{.ino = 2, .parent = fs::root_ino, .time = 9, .name = "g"}));
  CHECK(copy.find(2)->nlink == 2);
  CHECK_FALSE(copy.apply(fs::Replace{.ino = 99, .parent = fs::root_ino, .time = 9, .name = "g"}));
  CHECK_FALSE(copy.apply(fs::SetStaging{.ino = 99}));
}

TEST_CASE("the kernel is told of every change of a name, under no lock that a request needs") {
  LiveBuffer buffer;
  AskingKernel kernel(*buffer.filesystem);
  REQUIRE(publish(buffer, "f", "one", Over::nothing));
  REQUIRE(publish(buffer, "f", "two", Over::clean));
  REQUIRE(buffer.staging->add_directory("d", {.mode = 0755}).value() != 0);
  REQUIRE(buffer.staging->add_directory("d", {.mode = 0700}) == 0);
  REQUIRE(buffer.staging->add_symlink("l", "f", {.mode = 0777}));
  REQUIRE(buffer.staging->settle_directory("d", {.mode = 0755, .mtime = 5}));
  REQUIRE(buffer.staging->remove_clean("f"));
  CHECK(kernel.changed == "f f d l ");
  CHECK(kernel.removed == "f ");
  CHECK((buffer.staging->find("d")->attributes.st_mode & 0777) == 0755);
  CHECK(buffer.staging->find("d")->attributes.st_mtim.tv_nsec == 5);
}

TEST_CASE("every name that is there is doubted once, and each that was unloaded") {
  LiveBuffer buffer;
  REQUIRE(buffer.staging->add_directory("d", {.mode = 0755, .atime = 1, .mtime = 2}));
  for (const auto* path : {"f", "d/g", "away"}) {
    REQUIRE(publish(buffer, path, "x", Over::nothing));
  }
  REQUIRE(buffer.staging->remove_clean("away"));
  const auto directory = std::to_string(buffer.staging->find("d")->ino);
  AskingKernel kernel(*buffer.filesystem);
  buffer.staging->invalidate_entries();
  std::istringstream words(kernel.doubted);
  std::multiset<std::string> doubted{std::istream_iterator<std::string>(words), {}};
  // what it made itself
  std::erase_if(doubted, [](const std::string& name) { return name.contains("asked"); });
  CHECK(doubted == std::multiset<std::string>{"1:away?", "1:d", "1:f", directory + ":g"});
}

TEST_CASE("of a large directory every name is doubted once") {
  LiveBuffer buffer;
  constexpr int many = 10000;
  for (int i = 0; i < many; ++i) {
    REQUIRE(
        buffer.filesystem->make_node({}, fs::root_ino, "n" + std::to_string(i), S_IFREG | 0600, 0));
  }

  struct Counting final : fs::KernelView {
    void name_changed(std::uint64_t, const std::string&) override {}

    void name_removed(std::uint64_t, const std::string&, std::uint64_t, bool) override {}

    void name_doubted(std::uint64_t, const std::string& name, std::uint64_t) override {
      names.insert(name);
    }

    void attributes_changed(std::uint64_t) override {}

    void space_given_back(std::uint64_t) override {}

    void write_back(std::uint64_t) override {}

    void let_go(std::uint64_t) override {}

    void container_removed(std::uint64_t, std::uint64_t) override {}

    bool removes_later() override { return false; }

    void removals_wait() override {}

    void release_space() override {}

    void await_received() override {}

    std::multiset<std::string> names;
  } kernel;

  buffer.filesystem->attach(&kernel);
  buffer.staging->invalidate_entries();
  buffer.filesystem->attach(nullptr);
  CHECK(kernel.names.size() == many);
  CHECK(std::set<std::string>(kernel.names.begin(), kernel.names.end()).size() == many);
}

TEST_CASE("walk: many names are not listed to the end when the time is over, few are",
          "[fs][staging]") {
  LiveBuffer buffer;
  int asked = 0;
  const auto is_over = [&] {
    return ++asked > 0;
  };
  const auto make = [&](std::size_t from, std::size_t to) {
    const fs::StagedAttributes attributes{.mode = 0777, .atime = 7, .mtime = 8};
    for (std::size_t i = from; i < to; ++i) {
      REQUIRE(buffer.staging->make_symlink("l" + std::to_string(i), "t", attributes));
    }
  };
  make(0, 100);
  CHECK(buffer.staging->walk({}, is_over)->size() == 100);
  CHECK(asked == 0);
  make(100, fs::many_names);
  const auto items = buffer.staging->walk({}, is_over);
  REQUIRE(!items);
  CHECK(items.error().code == ECANCELED);
  CHECK(asked > 0);
  CHECK(buffer.staging->walk()->size() == fs::many_names);
}
