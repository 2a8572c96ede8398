// SPDX-License-Identifier: BSD-3-Clause
// The space of removed files: when it must be freed and when it must not.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "backends/fsdax.hpp"
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "support/durable_calls.hpp"
#include "support/open_handles.hpp"
#include "support/temp.hpp"

namespace efs::free_removed_test {
namespace {

using fs::Filesystem;
using fs::root_ino;

constexpr std::uint64_t mebibyte = 1U << 20U;
constexpr std::uint64_t capacity = 16 * mebibyte;
constexpr std::uint64_t little = mebibyte / 8;  // less than a noticeable part of the store

// A kernel that keeps removed containers until it must release them.
struct Kernel final : fs::KernelView {
  void name_changed(std::uint64_t, const std::string&) override {}

  void name_removed(std::uint64_t, const std::string&, std::uint64_t, bool) override {}

  void name_doubted(std::uint64_t, const std::string&, std::uint64_t) override {}

  void attributes_changed(std::uint64_t) override {}

  void space_given_back(std::uint64_t) override {}

  void write_back(std::uint64_t) override {}

  void let_go(std::uint64_t) override {}

  void container_removed(std::uint64_t ino, std::uint64_t) override { held.push_back(ino); }

  void removals_wait() override { ++series; }

  void release_space() override {
    if (releasing) {
      releasing();
    }
    held.clear();
  }

  void await_received() override {
    if (received) {
      std::exchange(received, {})();
    }
  }

  bool removes_later() override { return later; }

  bool later = false;
  int series = 0;                   // of removals that were put off
  std::function<void()> received;   // a request that a thread has received, and not yet handled
  std::function<void()> releasing;  // called before the containers are released
  std::vector<std::uint64_t> held;
};

// Bytes are counted, so that the store is full where a test wants it to be.
struct SmallStore {
  explicit SmallStore(const std::string& parent) : directory(parent) {
    ::mkdir((path + "/data").c_str(), 0700);
    FsdaxOptions options;
    options.directory.reset(::open((path + "/data").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    options.capacity = capacity;
    options.strict = true;
    backend = std::move(make_fsdax(std::move(options)).value());
    filesystem = std::move(*Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
    filesystem->attach(&kernel);
  }

  // The kernel has a reference to it.
  std::uint64_t file(const std::string& name, std::uint64_t size) {
    const auto made = filesystem->make_node({}, root_ino, name, S_IFREG | 0644, 0);
    REQUIRE(made);
    REQUIRE(append(made->ino, size) == size);
    return made->ino;
  }

  // As a program does; how much was stored.
  std::uint64_t append(std::uint64_t ino, std::uint64_t size) {
    const std::vector<std::byte> data(mebibyte, std::byte{1});
    std::uint64_t done = 0;
    while (done < size) {
      const auto at = static_cast<std::uint64_t>(filesystem->getattr(ino)->attributes.st_size);
      const auto piece = std::span(data).first(std::min<std::uint64_t>(data.size(), size - done));
      const auto n = filesystem->with_room([&] { return filesystem->write({}, ino, piece, at); });
      if (!n) {
        break;
      }
      done += *n;
    }
    return done;
  }

  bool is_free() {
    // A container may hold a block for its attributes.
    return kernel.held.empty() && backend->space().available > capacity - mebibyte;
  }

  const test::TempDirectory directory;
  const std::string path = std::filesystem::canonical(directory.path());
  const UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> backend;
  Kernel kernel;
  std::unique_ptr<Filesystem> filesystem;
};

}  // namespace

TEST_CASE("where space is scarce it is free when the removal of a file is answered", "[fs]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  const auto ino = store.file("f", 14 * mebibyte);
  SECTION("unlink") {
    REQUIRE(store.filesystem->unlink({}, root_ino, "f"));
  }
  SECTION("rename over it") {
    store.file("g", 0);
    REQUIRE(store.filesystem->rename({}, {root_ino, "g"}, {root_ino, "f"}, 0));
  }
  CHECK(store.is_free());
  const auto left = store.filesystem->getattr(ino);
  REQUIRE(left);
  CHECK(left->attributes.st_nlink == 0);
  CHECK(left->attributes.st_size == 14 * mebibyte);
  CHECK(store.filesystem->open({}, ino, O_RDONLY).error().code == ESTALE);
  CHECK_FALSE(store.filesystem->exists(ino));
  CHECK(store.filesystem->forget(ino, 1).gone);
  CHECK(store.filesystem->getattr(ino).error().code == ENOENT);
  CHECK(store.backend->space().available <= capacity);
}

// Else a create of another thread would not wait, and the next write would find no space.
TEST_CASE("space is owed until the kernel has released it", "[fs]") {
  SmallStore store("/dev/shm");
  store.file("stays", 9 * mebibyte);
  store.file("goes", 6 * mebibyte);
  int owed = 0;
  store.kernel.releasing = [&] {
    owed += store.filesystem->owes_space() ? 1 : 0;
  };
  REQUIRE(store.filesystem->unlink({}, root_ino, "goes"));
  CHECK(owed == 1);
  CHECK(store.kernel.held.empty());
  CHECK_FALSE(store.filesystem->owes_space());
}

TEST_CASE("while half of the store is free, containers of removed files are removed later",
          "[fs]") {
  SmallStore store("/dev/shm");
  Filesystem& files = *store.filesystem;
  store.kernel.later = true;
  const auto remove = [&](std::uint64_t ino, const std::string& name) {
    REQUIRE(files.unlink({}, root_ino, name));
    CHECK(files.forget(ino, 1).gone);
  };
  const auto ino = store.file("f", little);
  remove(ino, "f");
  REQUIRE(store.backend->attributes(ino));
  CHECK(files.put_off() == 1);
  CHECK(store.kernel.held.empty());
  SECTION("by the thread that was promised") {
    files.remove_put_off();
    CHECK(store.kernel.held == std::vector{ino});
  }
  SECTION("before the free space is told") {
    const auto told = files.statfs();
    CHECK(told.f_bavail * 4096 > capacity - little);
  }
  SECTION("where space is wanted") {
    CHECK(files.free_removed());
    CHECK(store.is_free());
  }
  SECTION("before a create, once less than half is free") {
    store.file("g", capacity / 2 + mebibyte);
    CHECK(files.put_off() == 1);
    store.file("h", 0);
  }
  SECTION("at the end") {
    store.filesystem.reset();
  }
  CHECK(store.backend->attributes(ino).error().code == ENOENT);
}

TEST_CASE("no removal is put off where space is short, and only so many are", "[fs]") {
  SmallStore store("/dev/shm");
  Filesystem& files = *store.filesystem;
  store.kernel.later = true;
  const auto made_and_removed = [&](std::uint64_t size) {
    const auto ino = store.file("f", size);
    REQUIRE(files.unlink({}, root_ino, "f"));
    files.forget(ino, 1);
    return ino;
  };
  for (std::size_t i = 0; i < fs::PutOffRemovals::most + 10; ++i) {
    made_and_removed(0);
  }
  CHECK(files.put_off() == fs::PutOffRemovals::most);
  CHECK(store.kernel.series == 1);
  files.remove_put_off();
  CHECK(files.put_off() == 0);
  made_and_removed(0);
  CHECK(store.kernel.series == 2);
  const auto large = made_and_removed(capacity / 2 + mebibyte);
  CHECK(files.put_off() == 0);
  CHECK(store.backend->attributes(large).error().code == ENOENT);
}

TEST_CASE("a removed file that holds a noticeable part is freed before the answer, on every level",
          "[fs]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  store.kernel.later = true;
  const auto ino = store.file("f", mebibyte);
  REQUIRE(store.filesystem->unlink({}, root_ino, "f"));
  CHECK(store.is_free());
  CHECK(store.filesystem->forget(ino, 1).gone);
}

TEST_CASE("a removal counts the close that was received before it", "[fs]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  Filesystem& files = *store.filesystem;
  const auto ino = store.file("f", 14 * mebibyte);
  REQUIRE(files.open({}, ino, O_RDWR));
  store.kernel.received = [&] {
    test::release(files, ino, O_RDWR);
  };
  SECTION("unlink") {
    REQUIRE(files.unlink({}, root_ino, "f"));
  }
  SECTION("rename over it") {
    store.file("g", 0);
    REQUIRE(files.rename({}, {root_ino, "g"}, {root_ino, "f"}, 0));
  }
  SECTION("the next create") {
    const auto close = std::exchange(store.kernel.received, {});
    REQUIRE(files.unlink({}, root_ino, "f"));
    store.kernel.received = close;
    store.file("g", 0);
  }
  CHECK(store.is_free());
}

TEST_CASE("a removed file keeps its space while a program has it open, and while it may get a name",
          "[fs]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  const int flags = GENERATE(O_RDONLY, O_WRONLY, O_RDWR);
  Filesystem& files = *store.filesystem;
  SECTION("open") {
    const auto ino = store.file("f", 14 * mebibyte);
    REQUIRE(files.open({}, ino, flags));
    REQUIRE(files.unlink({}, root_ino, "f"));
    files.free_removed();
    std::byte byte{};
    CHECK(files.read(ino, std::span(&byte, 1), 14 * mebibyte - 1) == 1);
    test::release(files, ino, flags);
    CHECK(store.is_free());
  }
  SECTION("nameless") {
    const auto ino = files.make_nameless({}, root_ino, 0600)->ino;
    REQUIRE(store.append(ino, 14 * mebibyte) == 14 * mebibyte);
    REQUIRE(files.open({}, ino, flags));
    test::release(files, ino, flags);
    files.free_removed();
    REQUIRE(files.link({}, ino, root_ino, "f"));
    CHECK(files.open({}, ino, flags));
  }
}

TEST_CASE("what a removed file holds is freed for a program that needs it", "[fs]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  Filesystem& files = *store.filesystem;
  const auto kept = store.file("kept", 0);
  std::vector<std::uint64_t> removed;
  for (int i = 0; i < 56; ++i) {
    removed.push_back(store.file("f", little));
    REQUIRE(files.unlink({}, root_ino, "f"));
  }
  CHECK_FALSE(store.is_free());  // there is room enough: the kernel's FORGET frees it
  CHECK(store.append(kept, 14 * mebibyte) == 14 * mebibyte);
  for (const auto ino : removed) {
    CHECK(files.forget(ino, 1).gone);
  }
}

TEST_CASE("an operation is tried again when another thread has freed the space meanwhile", "[fs]") {
  SmallStore store("/dev/shm");
  Filesystem& files = *store.filesystem;
  const auto ino = store.file("f", little);
  REQUIRE(files.unlink({}, root_ino, "f"));
  int calls = 0;
  CHECK(files.with_room([&]() -> Status {
    if (++calls > 1) {
      return {};
    }
    while (files.free_removed()) {  // as another thread, after this one met the full store
    }
    return fail(ENOSPC);
  }));
  CHECK(calls == 2);
  CHECK(files.forget(ino, 1).gone);
}

TEST_CASE("freeing what was removed costs nothing where nothing was", "[fs]") {
  SmallStore store("/dev/shm");
  CHECK_FALSE(store.filesystem->free_removed());
  store.file("f", little);
  REQUIRE(store.filesystem->unlink({}, root_ino, "f"));
  CHECK(store.filesystem->free_removed());
  CHECK(store.is_free());
  while (store.filesystem->free_removed()) {
  }
  int calls = 0;
  CHECK_FALSE(store.filesystem->with_room([&]() -> Status { return ++calls, fail(ENOSPC); }));
  CHECK(calls == 1);
}

TEST_CASE("where half of the space is used the last close of a removed file frees it", "[fs]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  Filesystem& files = *store.filesystem;
  const auto ino = store.file("f", 9 * mebibyte);
  REQUIRE(files.open({}, ino, O_RDWR));
  REQUIRE(files.unlink({}, root_ino, "f"));
  CHECK_FALSE(store.is_free());
  test::release(files, ino, O_RDWR);
  CHECK(store.is_free());
}

TEST_CASE("the death of an owner frees removed files that only it had open", "[fs][opens]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  Filesystem& files = *store.filesystem;
  const fs::Owner dead{.kind = fs::Owner::Kind::session, .number = 1};
  const fs::Owner alive{.kind = fs::Owner::Kind::session, .number = 2};
  const auto ino = store.file("f", 9 * mebibyte);
  REQUIRE(files.open({.owner = dead}, ino, O_RDWR));
  REQUIRE(files.open({.owner = dead}, ino, O_RDONLY));
  const auto other = files.open({.owner = alive}, ino, O_RDONLY);
  REQUIRE(other);
  REQUIRE(files.unlink({}, root_ino, "f"));
  files.close_all(dead);
  CHECK_FALSE(store.is_free());
  SECTION("the other one closes it") {
    CHECK(files.release(other->handle));
  }
  SECTION("the other one dies as well") {
    files.close_all(alive);
  }
  CHECK(store.is_free());
}

TEST_CASE("the death of an owner frees a file that the kernel has forgotten with opens of its own",
          "[fs][opens]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  Filesystem& files = *store.filesystem;
  const fs::Owner owner{.kind = fs::Owner::Kind::session, .number = 1};
  const auto ino = store.file("f", 9 * mebibyte);
  for (const int flags : {O_RDWR, O_RDONLY}) {
    REQUIRE(files.open({}, ino, flags));
    REQUIRE(files.open({.owner = owner}, ino, flags));
  }
  REQUIRE(files.unlink({}, root_ino, "f"));
  CHECK_FALSE(files.forget(ino, 1).gone);
  CHECK_FALSE(store.is_free());
  CHECK(files.open_for_writing() == std::vector{ino});
  files.close_all(owner);
  CHECK(files.open_for_writing().empty());
  CHECK(store.is_free());
}

TEST_CASE("paid debts leave those that were added later", "[fs]") {
  SmallStore store("/dev/shm");
  fs::SpaceAccount space(*store.backend);
  space.owe(0, capacity);
  const auto debts = space.debts();
  space.owe(0, capacity);
  space.pay(debts);
  CHECK(space.owes(1));
  CHECK(space.debts() == debts);
  space.pay(debts);
  CHECK_FALSE(space.owes(fs::SpaceAccount::noticeable));
}

TEST_CASE("a full disk is tried once more when another process's sync may have kept the space",
          "[fs]") {
  SmallStore store(GENERATE("/dev/shm", "/tmp"));
  store.file("f", mebibyte);
  REQUIRE(store.filesystem->unlink({}, root_ino, "f"));
  while (store.filesystem->free_removed()) {
  }
  const bool memory = store.backend->durability() == Durability::volatile_memory;
  for (const int expected : {memory ? 1 : 2, 1}) {
    int calls = 0;
    CHECK_FALSE(store.filesystem->with_room([&]() -> Status { return ++calls, fail(ENOSPC); }));
    CHECK(calls == expected);
  }
}

// As a removal of thousands of files would, on a store that was full.
TEST_CASE("many small files are freed together", "[fs]") {
  SmallStore store("/tmp");
  if (store.backend->durability() != Durability::page) {
    SKIP("/tmp is no place for this test");
  }
  Filesystem& files = *store.filesystem;
  constexpr int count = 600;
  std::vector<std::uint64_t> made;
  for (int i = 0; i < count; ++i) {
    made.push_back(files.make_node({}, root_ino, std::to_string(i), S_IFREG | 0644, 0)->ino);
    const std::vector<std::byte> data(24576, std::byte{1});
    REQUIRE(files.write({}, made.back(), data, 0));
  }
  const test::DurableCalls calls;
  for (int i = 0; i < count; ++i) {
    REQUIRE(files.unlink({}, root_ino, std::to_string(i)));
    CHECK(files.forget(made.at(static_cast<std::size_t>(i)), 1).gone);
  }
  const auto noted = calls.so_far();
  const auto journal = test::syncs(store.path + "/journal");
  const auto syncs = std::ranges::count_if(noted, journal.is);
  CHECK(syncs > 0);
  CHECK(syncs < count / 2);
  CHECK(store.backend->space().available > capacity - capacity / 32);
}

}  // namespace efs::free_removed_test
