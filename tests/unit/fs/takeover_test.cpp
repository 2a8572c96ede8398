// SPDX-License-Identifier: BSD-3-Clause
// A takeover after the worker's death: the same store, repeated requests.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/containers.hpp"
#include "support/temp.hpp"

using namespace efs;
using fs::Filesystem;

namespace {

constexpr std::uint64_t root = fs::root_ino;

struct TakeoverScene {
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> backend;
  std::unique_ptr<fs::OpenTable> opens = std::move(*fs::OpenTable::make());  // of the supervisor
  std::unique_ptr<Filesystem> filesystem;
  std::uint64_t request = 0;
  std::uint64_t smallest_compaction = 8U << 20U;

  TakeoverScene() {
    open(false);
    REQUIRE(filesystem->new_connection());
  }

  void open(bool takeover) {
    filesystem.reset();
    backend = test::open_containers(directory.path());
    filesystem = std::move(*Filesystem::open(*backend, {.metadata_directory = metadata.get(),
                                                        .smallest_compaction = smallest_compaction,
                                                        .takeover = takeover,
                                                        .opens = opens.get()}));
  }

  std::size_t open_files() const {
    return opens->count([](const fs::OpenFile&) { return true; });
  }

  /// The next request of the kernel.
  fs::Caller next() { return {.uid = 0, .gid = 0, .request = request += 2}; }

  /// The worker dies after it has carried out the request and before the reply. Returns the file
  /// system of the next worker, which gets the request again as `resent`.
  Filesystem* restarted(const fs::Caller& caller) {
    open(true);
    resent = caller;
    resent.resent = true;
    return filesystem.get();
  }

  fs::Caller resent;

  std::uint64_t file(const std::string& name) {
    return filesystem->make_node(next(), root, name, S_IFREG | 0644, 0)->ino;
  }

  bool there(const std::string& name) { return filesystem->lookup(root, name).has_value(); }
};

}  // namespace

TEST_CASE("a request that was carried out is answered and not carried out again", "[takeover]") {
  TakeoverScene s;
  SECTION("create") {
    const auto caller = s.next();
    const auto made = s.filesystem->make_node(caller, root, "f", S_IFREG | 0600, 0);
    const auto same = s.restarted(caller)->make_node(s.resent, root, "f", S_IFREG | 0600, 0);
    REQUIRE(same);
    CHECK(same->ino == made->ino);
  }
  SECTION("create that failed: its name was removed before the reply") {
    const auto caller = s.next();
    const auto made = s.filesystem->make_node(caller, root, "f", S_IFREG | 0600, 0);
    REQUIRE(made);
    CHECK(s.filesystem->unlink_only(root, "f", made->ino + 1).error().code == ESTALE);
    CHECK(s.there("f"));
    REQUIRE(s.filesystem->unlink_only(root, "f", made->ino));
    // the kernel asks again, by a new request
    const auto again = s.restarted(caller)->make_node(s.resent, root, "f", S_IFREG | 0600, 0);
    REQUIRE_FALSE(again);
    CHECK(again.error().code == ESTALE);
    CHECK_FALSE(s.there("f"));
    CHECK(s.filesystem->make_node(s.next(), root, "f", S_IFREG | 0600, 0));
  }
  SECTION("create without a name") {
    const auto caller = s.next();
    const auto made = s.filesystem->make_nameless(caller, root, 0600);
    CHECK(s.restarted(caller)->make_nameless(s.resent, root, 0600)->ino == made->ino);
  }
  SECTION("mkdir and symlink") {
    auto caller = s.next();
    const auto made = s.filesystem->make_node(caller, root, "d", S_IFDIR | 0700, 0);
    CHECK(s.restarted(caller)->make_node(s.resent, root, "d", S_IFDIR | 0700, 0)->ino == made->ino);
    caller = s.next();
    const auto link = s.filesystem->make_symlink(caller, root, "l", "target");
    CHECK(s.restarted(caller)->make_symlink(s.resent, root, "l", "target")->ino == link->ino);
  }
  SECTION("link, unlink, rmdir") {
    const auto ino = s.file("f");
    auto caller = s.next();
    REQUIRE(s.filesystem->link(caller, ino, root, "g"));
    const auto linked = s.restarted(caller)->link(s.resent, ino, root, "g");
    REQUIRE(linked);
    CHECK(linked->attributes.st_nlink == 2);
    caller = s.next();
    REQUIRE(s.filesystem->unlink(caller, root, "g"));
    CHECK(s.restarted(caller)->unlink(s.resent, root, "g"));
    REQUIRE(s.filesystem->make_node(s.next(), root, "d", S_IFDIR | 0700, 0));
    caller = s.next();
    REQUIRE(s.filesystem->rmdir(caller, root, "d"));
    CHECK(s.restarted(caller)->rmdir(s.resent, root, "d"));
    // A new request for the same is another matter.
    CHECK(s.filesystem->rmdir(s.next(), root, "d").error().code == ENOENT);
  }
  SECTION("rename, also where the source has come back") {
    s.file("a");
    auto caller = s.next();
    REQUIRE(s.filesystem->rename(caller, {root, "a"}, {root, "b"}, 0));
    const auto other = s.file("a");
    CHECK(s.restarted(caller)->rename(s.resent, {root, "a"}, {root, "b"}, 0));
    CHECK(s.filesystem->lookup(root, "a")->ino == other);
  }
  SECTION("extended attributes") {
    const auto ino = s.file("f");
    auto caller = s.next();
    REQUIRE(s.filesystem->setxattr(caller, ino, "user.a", "v", XATTR_CREATE));
    CHECK(s.restarted(caller)->setxattr(s.resent, ino, "user.a", "v", XATTR_CREATE));
    caller = s.next();
    REQUIRE(s.filesystem->removexattr(caller, ino, "user.a"));
    CHECK(s.restarted(caller)->removexattr(s.resent, ino, "user.a"));
  }
}

TEST_CASE("a request that was not carried out is, and an old connection's number means nothing",
          "[takeover]") {
  TakeoverScene s;
  const auto caller = s.next();
  CHECK(s.restarted(caller)->make_node(s.resent, root, "f", S_IFREG | 0600, 0));
  REQUIRE(s.filesystem->new_connection());
  const auto other = s.restarted(caller)->make_node(s.resent, root, "g", S_IFREG | 0600, 0);
  REQUIRE(other);
  CHECK(s.there("g"));
}

TEST_CASE("inodes without a name live as long as the kernel knows them", "[takeover]") {
  TakeoverScene s;
  const auto ino = s.file("f");
  REQUIRE(s.filesystem->write({}, ino, std::as_bytes(std::span("data", 4)), 0));
  REQUIRE(s.filesystem->unlink(s.next(), root, "f"));
  s.open(true);
  CHECK(s.filesystem->inherited_orphans(false) == std::vector{ino});
  CHECK(s.filesystem->inherited_orphans(true) == std::vector{ino});
  std::array<std::byte, 4> read{};
  CHECK(s.filesystem->read(ino, read, 0) == 4);
  const auto left = s.filesystem->forget(ino, 1);
  CHECK_FALSE(left.gone);
  CHECK(left.ask);  // the count is not known: only the kernel can say
  CHECK(s.filesystem->forget_all(ino).gone);
  CHECK_FALSE(s.filesystem->exists(ino));
  CHECK(s.backend->open(ino).error().code == ENOENT);
}

TEST_CASE(
    "an inode that the kernel may still have to be told of is not among those it has been told of",
    "[takeover]") {
  TakeoverScene s;
  const auto nameless = s.filesystem->make_nameless(s.next(), root, 0600)->ino;
  const auto linked = s.filesystem->make_nameless(s.next(), root, 0600)->ino;
  REQUIRE(s.filesystem->link(s.next(), linked, root, "l"));
  REQUIRE(s.filesystem->unlink(s.next(), root, "l"));
  const auto named = s.file("f");
  REQUIRE(s.filesystem->unlink(s.next(), root, "f"));
  s.open(true);
  const auto as_set = [](const std::vector<std::uint64_t>& found) {
    return std::set(found.begin(), found.end());
  };
  CHECK(as_set(s.filesystem->inherited_orphans(true)) == std::set{linked, named});
  CHECK(as_set(s.filesystem->inherited_orphans(false)) == std::set{nameless, linked, named});
}

// Removed directories leave only records, which every replay reads again.
TEST_CASE("successors that die soon do not replay more and more", "[takeover]") {
  TakeoverScene s;
  s.smallest_compaction = 2U << 20U;
  std::uint64_t records = 0;
  for (int life = 0; life < 12; ++life) {
    for (int i = 0; i < 4000; ++i) {
      const auto made = s.filesystem->make_node(s.next(), root, "d", S_IFDIR | 0700, 0);
      REQUIRE(made);
      REQUIRE(s.filesystem->rmdir(s.next(), root, "d"));
    }
    s.open(true);
    records = std::max(records, s.filesystem->recovery().journal.records);
    for (const auto ino : s.filesystem->inherited_orphans(true)) {
      CHECK(s.filesystem->forget_all(ino).gone);
    }
    s.filesystem->compact_inherited();
  }
  CHECK(records < 2 * fs::CompletedRequests::capacity + 3 * 8000);
}

TEST_CASE("a successor knows what its predecessor's programs have open", "[takeover]") {
  TakeoverScene s;
  const auto closed = s.file("closed"), written = s.file("written"), read = s.file("read");
  const auto clean = s.file("clean");
  REQUIRE(fs::Staging(*s.filesystem)
              .mark_saved("clean", {.device = 1, .inode = 1, .size = 0, .mtime = 1, .ctime = 1},
                          false));
  const auto opened = [&](std::uint64_t ino, int flags) {
    return s.filesystem->open(s.next(), ino, flags)->handle;
  };
  REQUIRE(s.filesystem->release(opened(closed, O_RDWR)));
  const auto writer = opened(written, O_RDWR), other = opened(written, O_WRONLY);
  const auto reader = opened(read, O_RDONLY);
  s.open(true);
  fs::Staging now(*s.filesystem);
  CHECK(s.open_files() == 3);
  CHECK(now.writers(written)->open == 2);
  CHECK(now.writers(written)->possible);
  CHECK(now.writers(read)->open == 0);
  CHECK(s.filesystem->open_for_writing() == std::vector{written});
  CHECK(s.filesystem->may_be_mapped() == std::vector{written});
  CHECK(s.filesystem->getattr(written)->may_change_now);
  CHECK_FALSE(s.filesystem->getattr(closed)->written_now);
  // A dirty file may be mapped, so that the kernel is asked. There is no mapping.
  CHECK_FALSE(now.is_counted_quiet(closed));
  CHECK_FALSE(now.writers(closed)->possible);
  CHECK(now.is_counted_quiet(clean));
  // Opens from now on count as well, and handles of both workers end.
  const auto later = opened(clean, O_WRONLY);
  CHECK(now.writers(clean)->open == 1);
  for (const auto handle : {writer, other, reader, later}) {
    CHECK(s.filesystem->release(handle));
    CHECK_FALSE(s.filesystem->release(handle));
  }
  CHECK(s.open_files() == 0);
  for (const auto ino : {written, clean}) {
    CHECK(now.writers(ino)->open == 0);
    CHECK_FALSE(now.writers(ino)->possible);
  }
}

TEST_CASE("a repeated open or create gets the open that the dead worker has made", "[takeover]") {
  TakeoverScene s;
  SECTION("open") {
    const auto ino = s.file("f");
    const auto caller = s.next();
    const int flags = GENERATE(O_RDONLY, O_WRONLY, O_RDWR);
    const auto handle = s.filesystem->open(caller, ino, flags)->handle;
    const auto again = s.restarted(caller)->open(s.resent, ino, flags);
    REQUIRE(again);
    CHECK(again->handle == handle);
    CHECK(s.open_files() == 1);
    // Its successor dies before the reply, too.
    CHECK(s.restarted(caller)->open(s.resent, ino, flags)->handle == handle);
    CHECK(fs::Staging(*s.filesystem).writers(ino)->open == (flags == O_RDONLY ? 0 : 1));
    REQUIRE(s.filesystem->release(handle));
  }
  SECTION("create") {
    const auto caller = s.next();
    const auto made = s.filesystem->make_node(caller, root, "f", S_IFREG | 0600, 0)->ino;
    const auto handle = s.filesystem->open(caller, made, O_RDWR, true)->handle;
    const auto same = s.restarted(caller)->make_node(s.resent, root, "f", S_IFREG | 0600, 0);
    REQUIRE(same);
    const auto again = s.filesystem->open(s.resent, same->ino, O_RDWR, true);
    REQUIRE(again);
    CHECK(again->handle == handle);
    CHECK(s.open_files() == 1);
    REQUIRE(s.filesystem->release(handle));
  }
  SECTION("the dead worker made none: the repeated request does") {
    const auto ino = s.file("f");
    const auto other = s.filesystem->open(s.next(), ino, O_WRONLY)->handle;
    const auto caller = s.next();
    const auto handle = s.restarted(caller)->open(s.resent, ino, O_WRONLY)->handle;
    CHECK(handle != other);
    CHECK(s.open_files() == 2);
    CHECK(s.filesystem->release(other));
    CHECK(s.filesystem->release(handle));
  }
  CHECK(s.open_files() == 0);
}

TEST_CASE("a repeated release ends no other open", "[takeover]") {
  TakeoverScene s;
  const auto ino = s.file("f");
  const auto stale = s.filesystem->open(s.next(), ino, O_WRONLY)->handle;
  REQUIRE(s.filesystem->release(stale));
  s.open(true);
  const auto handle = s.filesystem->open(s.next(), ino, O_WRONLY)->handle;
  CHECK_FALSE(s.filesystem->release(stale));
  CHECK(fs::Staging(*s.filesystem).writers(ino)->open == 1);
  CHECK(s.filesystem->release(handle));
}

TEST_CASE("an open that the kernel does not repeat ends with its file", "[takeover]") {
  TakeoverScene s;
  const auto kept = s.file("kept"), removed = s.file("removed");
  REQUIRE(s.filesystem->open(s.next(), kept, O_RDONLY));
  REQUIRE(s.filesystem->open(s.next(), removed, O_RDONLY));
  REQUIRE(s.filesystem->unlink(s.next(), root, "removed"));
  s.open(true);
  CHECK(s.open_files() == 2);
  CHECK(s.filesystem->forget_all(removed).gone);
  CHECK(s.open_files() == 1);
}

TEST_CASE("a removed file that is open across a takeover is free after its close", "[takeover]") {
  TakeoverScene s;
  const auto ino = s.file("f");
  const auto handle = s.filesystem->open(s.next(), ino, O_RDWR)->handle;
  REQUIRE(s.filesystem->write({}, ino, std::as_bytes(std::span("data", 4)), 0));
  REQUIRE(s.filesystem->unlink(s.next(), root, "f"));
  s.open(true);
  std::array<std::byte, 4> read{};
  CHECK(s.filesystem->read(ino, read, 0) == 4);
  CHECK(s.filesystem->release(handle));
  CHECK(s.open_files() == 0);
  CHECK(s.filesystem->forget_all(ino).gone);
  CHECK(s.backend->open(ino).error().code == ENOENT);
}

TEST_CASE("a start after the death of all begins with no open files", "[takeover]") {
  TakeoverScene s;
  const auto ino = s.file("f");
  const auto handle = s.filesystem->open(s.next(), ino, O_WRONLY)->handle;
  s.open(false);
  CHECK(s.open_files() == 0);
  CHECK_FALSE(s.filesystem->release(handle));
}

TEST_CASE(
    "a successor has a write to a clean file without a name looked up again: staging may have "
    "taken that",
    "[takeover]") {
  TakeoverScene s;
  const auto clean = s.file("clean"), written = s.file("written");
  for (const auto ino : {clean, written}) {
    REQUIRE(s.filesystem->lookup(root, ino == clean ? "clean" : "written"));
  }
  REQUIRE(s.filesystem->open(s.next(), written, O_WRONLY));
  fs::Staging staging(*s.filesystem);
  REQUIRE(staging.mark_saved("clean", {.device = 1, .inode = 2}, false));
  REQUIRE(staging.remove_clean("clean"));
  REQUIRE(s.filesystem->unlink(s.next(), root, "written"));
  s.open(true);
  CHECK(s.filesystem->open(s.next(), clean, O_WRONLY).error().code == ESTALE);
  CHECK(s.filesystem->open(s.next(), clean, O_RDONLY));
  CHECK(s.filesystem->open(s.next(), written, O_WRONLY));
}

TEST_CASE("a file that has a name is not taken for forgotten", "[takeover]") {
  TakeoverScene s;
  const auto ino = s.file("f");
  s.open(true);
  const auto left = s.filesystem->forget(ino, 1000);
  CHECK_FALSE(left.gone);
  CHECK_FALSE(left.ask);
  CHECK_FALSE(s.filesystem->forget_all(ino).gone);
  CHECK(s.there("f"));
}

TEST_CASE("answers and places in directories survive snapshots", "[takeover]") {
  TakeoverScene s;
  const auto caller = s.next();
  const auto made = s.filesystem->make_node(caller, root, "first", S_IFDIR | 0700, 0);
  const std::uint64_t directory =
      s.filesystem->make_node(s.next(), root, "walked", S_IFDIR | 0700, 0)->ino;
  for (int i = 0; i < 50; ++i) {
    REQUIRE(
        s.filesystem->make_node(s.next(), directory, "n" + std::to_string(i), S_IFDIR | 0700, 0));
  }
  for (int i = 0; i < 50; i += 2) {
    REQUIRE(s.filesystem->rmdir(s.next(), directory, "n" + std::to_string(i)));
  }
  REQUIRE(s.filesystem->rmdir(s.next(), directory, "n49"));
  const auto half = s.filesystem->readdir(directory, 0, 14);
  REQUIRE(half);
  // Until the journal has been replaced by a snapshot: it gets shorter.
  const auto size = [&] {
    return std::filesystem::file_size(s.directory.path() + "/journal");
  };
  const std::string value(60000, 'x');
  std::uintmax_t last = 0;
  for (int i = 0; size() >= last; ++i) {
    REQUIRE(i < 5000);
    last = size();
    REQUIRE(s.filesystem->setxattr({}, root, "user.a", value, 0));
  }
  s.open(true);
  auto resent = caller;
  resent.resent = true;
  const auto same = s.filesystem->make_node(resent, root, "first", S_IFDIR | 0700, 0);
  REQUIRE(same);
  CHECK(same->ino == made->ino);
  std::multiset<std::string> names;
  for (const auto& item : *half) {
    names.insert(item.name);
  }
  // A name that is made now is in the next walk, one that went is gone, no other is met twice or
  // never.
  REQUIRE(s.filesystem->make_node(s.next(), directory, "late", S_IFDIR | 0700, 0));
  const auto rest = s.filesystem->readdir(directory, half->back().cookie, 1000);
  REQUIRE(rest);
  for (const auto& item : *rest) {
    names.insert(item.name);
  }
  CHECK(names.size() == 2 + 24);
  CHECK(s.filesystem->readdir(directory, 0, 1000)->size() == 2 + 24 + 1);
  for (int i = 1; i < 49; i += 2) {
    CHECK(names.count("n" + std::to_string(i)) == 1);
  }
}

TEST_CASE("a container that no record knows is in nobody's way", "[takeover]") {
  TakeoverScene s;
  const auto last = s.file("last");
  // The earlier worker died between a container and its record: for the next create, and for the
  // one after it.
  for (const auto number : {last + 1, last + 2}) {
    auto left = s.backend->create(number);
    REQUIRE(left);
    REQUIRE((*left)->write(std::as_bytes(std::span("old", 3)), 0) == 3U);
  }
  s.open(true);
  CHECK(s.filesystem->recovery().unknown_containers == 2);
  for (const auto number : {last + 1, last + 2}) {
    CHECK_FALSE(s.backend->attributes(number));
  }
  for (const char* name : {"a", "b", "c"}) {
    const auto made = s.filesystem->make_node(s.next(), root, name, S_IFREG | 0600, 0);
    REQUIRE(made);
    CHECK(made->attributes.st_size == 0);
  }
}

TEST_CASE("a successor and a start after the death of all differ in what the kernel has",
          "[takeover]") {
  TakeoverScene s;
  const auto caller = s.next();
  const auto ino = s.filesystem->make_node(caller, root, "f", S_IFREG | 0600, 0)->ino;
  REQUIRE(s.filesystem->unlink(s.next(), root, "f"));
  REQUIRE(s.backend->create(200));  // a load that was under way
  auto resent = caller;
  resent.resent = true;
  SECTION("takeover") {
    s.open(true);
    CHECK(s.filesystem->exists(ino));
    CHECK(s.filesystem->make_node(resent, root, "f", S_IFREG | 0600, 0).error().code == ESTALE);
  }
  SECTION("start") {
    s.open(false);
    CHECK_FALSE(s.filesystem->exists(ino));
    CHECK_FALSE(s.backend->attributes(ino));
    CHECK(s.filesystem->make_node(resent, root, "f", S_IFREG | 0600, 0)->ino != ino);
  }
  CHECK_FALSE(s.backend->attributes(200));
}

TEST_CASE("a file without a name that the kernel has given back is gone after a takeover",
          "[takeover]") {
  TakeoverScene s;
  const auto ino = s.file("f");
  REQUIRE(s.filesystem->unlink(s.next(), root, "f"));
  CHECK(s.filesystem->forget(ino, 1).gone);  // leaves no record
  s.open(true);
  CHECK_FALSE(s.filesystem->exists(ino));
  CHECK(s.filesystem->inherited_orphans(false).empty());
  CHECK_FALSE(s.backend->attributes(ino));
}
