// SPDX-License-Identifier: BSD-3-Clause
#include "fs/container_pool.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <thread>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/containers.hpp"
#include "support/failing_backend.hpp"
#include "support/staged_file.hpp"
#include "support/temp.hpp"

using namespace efs;
using fs::ContainerPool;
using fs::Filesystem;

namespace {

struct PoolScene {
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> real;
  std::unique_ptr<test::FailingBackend> backend;
  std::unique_ptr<Filesystem> filesystem;
  std::size_t prepared = 0;  // of the last fill

  PoolScene() { open(); }

  void open() {
    filesystem.reset();
    real = test::open_containers(directory.path());
    backend = std::make_unique<test::FailingBackend>(*real);
    filesystem = std::move(*Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
  }

  void fill() {
    prepared = 0;
    filesystem->fill_pool(
        [this](std::span<const ContainerPool::Ready> made) { prepared += made.size(); });
  }

  Result<fs::Entry> make(const std::string& name, mode_t type = S_IFREG) {
    return filesystem->make_node({}, fs::root_ino, name, type | 0644, 0);
  }

  std::size_t containers() const {
    std::size_t count = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory.path() + "/data")) {
      count += entry.is_regular_file();
    }
    return count;
  }
};

}  // namespace

TEST_CASE("creates take from the pool, and make their own container when it is empty") {
  PoolScene scene;
  scene.fill();
  const auto ahead = static_cast<int>(scene.prepared);
  REQUIRE(ahead > 0);
  REQUIRE(scene.backend->creates() == ahead);
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < ahead; ++i) {
    numbers.insert(scene.make("f" + std::to_string(i))->ino);
  }
  CHECK(scene.backend->creates() == ahead);
  CHECK(scene.containers() == numbers.size());
  for (int i = 0; i < 10; ++i) {
    numbers.insert(scene.make("g" + std::to_string(i))->ino);
  }
  CHECK(scene.backend->creates() == ahead + 10);
  CHECK(numbers.size() == static_cast<std::size_t>(ahead) + 10);
}

TEST_CASE("the pool grows with the demand and stays bounded") {
  PoolScene scene;
  int made = 0;
  for (int i = 0; i < 500; ++i) {
    REQUIRE(scene.make("f" + std::to_string(i)));
    ++made;
    scene.fill();
    if (i % 50 == 0) {
      CHECK(scene.containers() <= static_cast<std::size_t>(made) + ContainerPool::most);
    }
  }
  // Nothing is taken: nothing is added.
  scene.fill();
  const auto before = scene.containers();
  for (int i = 0; i < 100; ++i) {
    scene.fill();
  }
  CHECK(scene.containers() == before);
}

TEST_CASE("a file from the pool is as old as its create") {
  PoolScene scene;
  scene.fill();
  // The clock that containers are stamped by, later than what is in the pool.
  const FileTime filled = wall_time();
  timespec tick{};
  do {
    clock_gettime(CLOCK_REALTIME_COARSE, &tick);
  } while (FileTime(tick) <= filled);
  const FileTime before = tick;
  const auto entry = scene.make("f");
  REQUIRE(entry);
  CHECK(to_ns(entry->attributes.st_mtim) >= before);
  CHECK(to_ns(entry->attributes.st_atim) >= before);
  CHECK(to_ns(entry->attributes.st_ctim) >= before);
  CHECK(to_ns(scene.filesystem->getattr(entry->ino)->attributes.st_mtim) ==
        to_ns(entry->attributes.st_mtim));
  CHECK(entry->attributes.st_size == 0);
}

TEST_CASE("a file from the pool has its record's times until a program changes them") {
  PoolScene scene;
  scene.fill();
  const auto made = scene.make("f");
  REQUIRE(made);
  const auto ino = made->ino;
  const auto attributes = [&] {
    return scene.filesystem->getattr(ino)->attributes;
  };
  const auto of_container = [&] {
    return *scene.backend->attributes(ino);
  };
  // The create has changed nothing of the container.
  CHECK(FileTime(of_container().st_mtim).nanoseconds == fs::record_has_time);
  CHECK(FileTime(of_container().st_atim).nanoseconds == fs::record_has_time);
  CHECK(of_container().st_mtim.tv_sec >= wall_time().seconds - 60);
  CHECK(made->attributes.st_blocks == of_container().st_blocks);
  const FileTime born = attributes().st_mtim;
  SECTION("a change of the mode is none") {
    REQUIRE(scene.filesystem->setattr({}, ino, {.mode = 0600}));
    CHECK(FileTime(attributes().st_mtim) == born);
  }
  SECTION("a write") {
    REQUIRE(scene.filesystem->write({}, ino, std::as_bytes(std::span("x", 1)), 0));
    CHECK(FileTime(attributes().st_mtim) >= born);
    CHECK(FileTime(attributes().st_mtim) == FileTime(of_container().st_mtim));
    CHECK(FileTime(attributes().st_atim) == born);
  }
  SECTION("times in the past, one by one") {
    const FileTime past = timespec{.tv_sec = 1000, .tv_nsec = 5};
    REQUIRE(scene.filesystem->setattr({}, ino, {.mtime = past}));
    CHECK(FileTime(attributes().st_mtim) == past);
    CHECK(FileTime(attributes().st_atim) == born);
    REQUIRE(scene.filesystem->setattr({}, ino, {.atime = past}));
    CHECK(FileTime(attributes().st_atim) == past);
  }
  SECTION("now") {
    REQUIRE(scene.filesystem->setattr({}, ino, {.atime = stamp_now, .mtime = stamp_now}));
    CHECK(FileTime(attributes().st_mtim) >= born);
    CHECK(FileTime(of_container().st_mtim) == FileTime(attributes().st_mtim));
  }
  // A recovery knows the same.
  const auto before = attributes();
  scene.open();
  CHECK(FileTime(attributes().st_mtim) == FileTime(before.st_mtim));
  CHECK(FileTime(attributes().st_atim) == FileTime(before.st_atim));
  CHECK(FileTime(attributes().st_ctim) == FileTime(before.st_ctim));
}

TEST_CASE(
    "directories, links and what is staged in take numbers that neither the pool nor another has "
    "reserved") {
  PoolScene scene;
  scene.fill();
  std::set<std::uint64_t> numbers;
  // which take several ahead
  fs::Staging stagings[] = {fs::Staging(*scene.filesystem), fs::Staging(*scene.filesystem)};
  for (int i = 0; i < 100; ++i) {
    for (auto& staging : stagings) {
      numbers.insert(*test::begin_file(staging));
    }
    numbers.insert(scene.make("d" + std::to_string(i), S_IFDIR)->ino);
    numbers.insert(scene.make("f" + std::to_string(i))->ino);
    numbers.insert(
        scene.filesystem->make_symlink({}, fs::root_ino, "l" + std::to_string(i), "x")->ino);
    fs::Staging staging(*scene.filesystem);
    numbers.insert(*test::begin_file(staging));
    if (i % 10 == 0) {
      scene.fill();
    }
  }
  CHECK(numbers.size() == 600);
}

TEST_CASE(
    "a store that refuses a part of a fill keeps the rest, and is left in peace for a while") {
  PoolScene scene;
  for (int i = 0; i < 100; ++i) {  // to full batches
    REQUIRE(scene.make("f" + std::to_string(i)));
    scene.fill();
  }
  // Use it up without a fill.
  const int creates = scene.backend->creates();
  for (int i = 0; scene.backend->creates() == creates; ++i) {
    REQUIRE(scene.make("u" + std::to_string(i)));
  }
  scene.backend->allow_creates(5);
  scene.fill();
  CHECK(scene.prepared == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(scene.make("k" + std::to_string(i)));
  }
  // The store is full: the create's own try says so.
  CHECK(scene.make("full").error().code == ENOSPC);
  CHECK(scene.filesystem->lookup(fs::root_ino, "full").error().code == ENOENT);
  const int asked = scene.backend->creates();
  for (unsigned i = 0; i < ContainerPool::pause_after_failure; ++i) {
    scene.fill();
  }
  CHECK(scene.backend->creates() == asked);
  scene.backend->allow_creates(-1);
  scene.fill();
  CHECK(scene.prepared == ContainerPool::largest_batch);
}

TEST_CASE("a clean end removes what was not used") {
  PoolScene scene;
  REQUIRE(scene.make("kept"));
  scene.fill();
  CHECK(scene.containers() == 1 + scene.prepared);
  scene.filesystem.reset();
  CHECK(scene.containers() == 1);
  scene.open();
  CHECK(scene.filesystem->lookup(fs::root_ino, "kept"));
}

TEST_CASE("numbers of the pool are never used again, not even after a crash") {
  PoolScene scene;
  std::uint64_t highest = 0;
  for (int round = 0; round < 5; ++round) {
    const auto made = scene.make("f" + std::to_string(round));
    REQUIRE(made);
    CHECK(made->ino > highest);
    scene.filesystem->fill_pool([&](std::span<const ContainerPool::Ready> ahead) {
      for (const auto& one : ahead) {
        CHECK(one.ino > highest);
        CHECK(one.container->attributes()->st_size == 0);
      }
      highest = ahead.back().ino;
    });
    // A crash: what lies on the medium is the journal as it is, and the pool's containers.
    const std::size_t left = scene.containers();
    const test::TempDirectory copy("/dev/shm");
    std::filesystem::copy(scene.directory.path(), copy.path(),
                          std::filesystem::copy_options::recursive);
    const UniqueFd metadata = copy.open();
    auto backend = test::open_containers(copy.path());
    auto again = Filesystem::open(*backend, {.metadata_directory = metadata.get()});
    REQUIRE(again);
    const auto next = (*again)->make_node({}, fs::root_ino, "after", S_IFREG | 0644, 0);
    REQUIRE(next);  // no container of the dead is in the way
    CHECK(next->ino > highest);
    CHECK(left > static_cast<std::size_t>(round) + 1);
    scene.open();
  }
}

TEST_CASE("creates, fills and removals side by side leave no container too many") {
  PoolScene scene;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&scene, t] {
      for (int i = 0; i < 300; ++i) {
        const std::string name = std::to_string(t) + "-" + std::to_string(i);
        const auto made = scene.make(name);
        scene.filesystem->fill_pool([](std::span<const ContainerPool::Ready>) {});
        if (i % 2 == 0) {
          (void)scene.filesystem->unlink({}, fs::root_ino, name);
        }
        if (made) {
          (void)scene.filesystem->forget(made->ino, 1);
        }
      }
    });
  }
  threads.clear();
  scene.filesystem.reset();
  CHECK(scene.containers() == 4 * 150);
}
