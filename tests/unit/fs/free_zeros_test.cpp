// SPDX-License-Identifier: BSD-3-Clause
// Zeros that take space: when the last close gives it back, and when it must not. The store is a
// plain tmpfs with zeros that a program has stored, which needs no privilege; the huge pages
// themselves are in mount/sparse_test.sh.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backends/fsdax.hpp"
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/staging.hpp"
#include "support/failing_backend.hpp"
#include "support/open_handles.hpp"
#include "support/temp.hpp"

namespace efs::free_zeros_test {
namespace {

using fs::Filesystem;
using fs::root_ino;

constexpr std::uint64_t page = 4096, extent = 2U << 20;  // bytes

struct Kernel final : fs::KernelView {
  void name_changed(std::uint64_t, const std::string&) override {}

  void name_removed(std::uint64_t, const std::string&, std::uint64_t, bool) override {}

  void name_doubted(std::uint64_t, const std::string&, std::uint64_t) override {}

  void attributes_changed(std::uint64_t) override {}

  void space_given_back(std::uint64_t) override { ++given_back; }

  void write_back(std::uint64_t) override {}

  void let_go(std::uint64_t) override {}

  void container_removed(std::uint64_t, std::uint64_t) override {}

  bool removes_later() override { return false; }

  void removals_wait() override {}

  void release_space() override {}

  void await_received() override {}

  std::atomic<int> given_back{0};
};

struct Store {
  Store() {
    ::mkdir((path + "/data").c_str(), 0700);
    FsdaxOptions options;
    options.directory.reset(::open((path + "/data").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    real = std::move(make_fsdax(std::move(options)).value());
    backend = std::make_unique<test::FailingBackend>(*real);
    backend->let_zeros_take_space();
    filesystem = std::move(*Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
    filesystem->attach(&kernel);
  }

  /// Makes a file and leaves it open. Each extent has half a page of data at its start, and zeros
  /// that take space.
  std::uint64_t sparse(int flags, std::uint64_t extents = 3) {
    const auto made = filesystem->make_node({}, root_ino, "f", S_IFREG | 0644, 0);
    REQUIRE(made);
    REQUIRE(filesystem->open({}, made->ino, flags));
    if (sets_size) {
      REQUIRE(filesystem->setattr({}, made->ino, {.size = extents * extent}));
    }
    std::vector<std::byte> data(extent);
    std::memset(data.data(), 'x', page / 2);
    for (std::uint64_t i = 0; i < extents; ++i) {
      REQUIRE(filesystem->write({}, made->ino, data, i * extent) == extent);
    }
    return made->ino;
  }

  struct stat attributes(std::uint64_t ino) { return filesystem->getattr(ino)->attributes; }

  std::uint64_t allocated(std::uint64_t ino) {
    return static_cast<std::uint64_t>(attributes(ino).st_blocks) * 512;
  }

  bool is_whole(std::uint64_t ino, std::uint64_t extents = 3) {
    std::vector<std::byte> data(extent), wanted(extent);
    std::memset(wanted.data(), 'x', page / 2);
    for (std::uint64_t i = 0; i < extents; ++i) {
      if (filesystem->read(ino, data, i * extent) != extent || data != wanted) {
        return false;
      }
    }
    return true;
  }

  const test::TempDirectory directory{"/dev/shm"};
  const std::string path = directory.path();
  const UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> real;
  std::unique_ptr<test::FailingBackend> backend;
  Kernel kernel;
  std::unique_ptr<Filesystem> filesystem;
  bool sets_size = true;  // of the files, before they are written
};

bool same(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

TEST_CASE("the last close of a writer gives zeros back, and nothing else changes", "[fs][zeros]") {
  Store store;
  Filesystem& files = *store.filesystem;
  const int flags = GENERATE(O_WRONLY, O_RDWR);
  const auto ino = store.sparse(flags);
  REQUIRE(store.allocated(ino) == 3 * extent);
  REQUIRE(files.open({}, ino, O_RDONLY));  // a reader does not prevent the punch
  const auto before = store.attributes(ino);
  const auto edits = fs::Staging(files).edits(ino).value();
  test::release(files, ino, flags);
  CHECK(store.allocated(ino) == 3 * page);
  CHECK(store.kernel.given_back == 1);
  CHECK(store.is_whole(ino));
  const auto after = store.attributes(ino);
  CHECK(after.st_size == before.st_size);
  CHECK(same(after.st_mtim, before.st_mtim));
  CHECK(same(after.st_ctim, before.st_ctim));
  CHECK(fs::Staging(files).edits(ino).value() == edits);
  // A change by a program changes the times.
  REQUIRE(files.open({}, ino, flags));
  REQUIRE(files.write({}, ino, std::vector<std::byte>(1, std::byte{'x'}), 0) == 1);
  CHECK_FALSE(same(store.attributes(ino).st_mtim, before.st_mtim));
  CHECK_FALSE(same(store.attributes(ino).st_ctim, before.st_ctim));
}

TEST_CASE("the death of the last writer gives zeros back", "[fs][zeros][opens]") {
  Store store;
  const auto ino = store.sparse(O_WRONLY);
  {
    // A program that has outlived the connection may write.
    const auto container = store.real->open(ino, CachePolicy::closed);
    const UniqueFd survivor(
        ::open(("/proc/self/fd/" + std::to_string(*(*container)->descriptor())).c_str(), O_WRONLY));
    store.filesystem->close_all({});
    CHECK(store.allocated(ino) == 3 * extent);
    CHECK_FALSE(fs::Staging(*store.filesystem).is_counted_quiet(ino));
  }
  store.filesystem->free_removed();
  CHECK(store.allocated(ino) == 3 * page);
  CHECK(store.is_whole(ino));
}

TEST_CASE("zeros of a file whose size was not set stay: they may reserve space", "[fs][zeros]") {
  Store store;
  store.sets_size = false;
  const auto ino = store.sparse(O_WRONLY);
  const auto taken = store.allocated(ino);
  test::release(*store.filesystem, ino, O_WRONLY);
  CHECK(store.kernel.given_back == 0);
  CHECK(store.allocated(ino) == taken);
}

TEST_CASE("a file without zeros, and zeros that take no space, are left alone", "[fs][zeros]") {
  Store store;
  Filesystem& files = *store.filesystem;
  const auto ino = store.sparse(O_WRONLY);
  std::vector<std::byte> data(3 * extent, std::byte{1});
  const bool is_full = GENERATE(true, false);
  if (is_full) {
    REQUIRE(files.write({}, ino, data, 0) == data.size());
  } else {
    REQUIRE(files.setattr({}, ino, {.size = 0}));
    REQUIRE(files.setattr({}, ino, {.size = 64 * extent}));
  }
  const auto taken = store.allocated(ino);
  test::release(files, ino, O_WRONLY);
  CHECK(store.kernel.given_back == 0);
  CHECK(store.allocated(ino) == taken);
}

TEST_CASE("zeros stay while a program may write to them", "[fs][zeros]") {
  Store store;
  Filesystem& files = *store.filesystem;
  const auto ino = store.sparse(O_RDWR);
  SECTION("another open") {
    REQUIRE(files.open({}, ino, O_WRONLY));
    test::release(files, ino, O_RDWR);
    CHECK(store.allocated(ino) == 3 * extent);
    test::release(files, ino, O_WRONLY);
  }
  SECTION("a mapping of the container, which the kernel does not tell of") {
    const auto container = store.real->open(ino, CachePolicy::closed);
    const UniqueFd mapped(
        ::open(("/proc/self/fd/" + std::to_string(*(*container)->descriptor())).c_str(), O_RDWR));
    test::release(files, ino, O_RDWR);
    CHECK(store.allocated(ino) == 3 * extent);
  }
  SECTION("staging has it in hand, and looks at its times") {
    const auto held = fs::Staging(files).open_container(ino);
    test::release(files, ino, O_RDWR);
    CHECK(store.allocated(ino) == 3 * extent);
  }
  // At the latest before ENOSPC.
  files.free_removed();
  CHECK(store.allocated(ino) == 3 * page);
  CHECK(store.is_whole(ino));
}

TEST_CASE("space that is reserved stays reserved", "[fs][zeros]") {
  Store store;
  Filesystem& files = *store.filesystem;
  const auto ino = store.sparse(O_RDWR);
  const int mode = GENERATE(0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
  REQUIRE(files.allocate({}, ino, mode, extent, page));
  const auto taken = store.allocated(ino);
  test::release(files, ino, O_RDWR);
  files.free_removed();
  const bool reserves = (mode & FALLOC_FL_PUNCH_HOLE) == 0;
  CHECK((store.allocated(ino) == taken) == reserves);
}

TEST_CASE("what an earlier process knew of a file is not known", "[fs][zeros]") {
  Store store;
  const auto ino = store.sparse(O_RDWR);
  const bool takeover = GENERATE(true, false);
  store.filesystem.reset();
  auto again = Filesystem::open(*store.backend,
                                {.metadata_directory = store.metadata.get(), .takeover = takeover});
  REQUIRE(again);
  store.filesystem = std::move(*again);
  Filesystem& files = *store.filesystem;
  if (!takeover) {
    REQUIRE(files.lookup(root_ino, "f"));
  }
  REQUIRE(files.open({}, ino, O_RDWR));
  test::release(files, ino, O_RDWR);
  files.free_removed();
  CHECK(store.allocated(ino) == 3 * extent);
}

TEST_CASE("an open for writing behind the proof keeps the zeros", "[fs][zeros]") {
  Store store;
  Filesystem& files = *store.filesystem;
  const auto ino = store.sparse(O_RDWR);
  // The first look, and the one behind the proof.
  int opened = 0;
  store.backend->after_open([&](std::uint64_t) {
    if (++opened == 2) {
      REQUIRE(files.open({}, ino, O_WRONLY));
    }
  });
  test::release(files, ino, O_RDWR);
  REQUIRE(opened >= 2);
  CHECK(store.allocated(ino) == 3 * extent);
  store.backend->after_open({});
  test::release(files, ino, O_WRONLY);
  CHECK(store.allocated(ino) == 3 * page);
}

// Each writer has an extent of its own, and stores a page among zeros that take space. What a punch
// takes away would be missed at once.
TEST_CASE("a writer that opens the file while zeros are given back loses nothing",
          "[fs][zeros][race]") {
  Store store;
  Filesystem& files = *store.filesystem;
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  constexpr std::uint64_t writers = 3;
  const auto ino = store.sparse(O_RDWR, writers);
  test::release(files, ino, O_RDWR);
  std::atomic<std::uint64_t> running{writers};
  std::atomic<int> lost{0};
  const auto write = [&](std::uint64_t number) {
    std::mt19937 random(seed + static_cast<unsigned>(number));
    const std::uint64_t begin = number * extent;
    const std::vector<std::byte> zeros(extent);
    std::vector<std::byte> data(page), read(page);
    for (int round = 0; round < 150; ++round) {
      const std::uint64_t at = begin + random() % (extent / page) * page;
      std::memset(data.data(), static_cast<int>(1 + random() % 255), page);
      for (const auto& [bytes, offset] :
           {std::pair(std::span(zeros), begin), std::pair(std::span(std::as_const(data)), at)}) {
        if (!files.open({}, ino, O_RDWR) || files.write({}, ino, bytes, offset) != bytes.size()) {
          ++lost;
        }
        test::release(files, ino, O_RDWR);
      }
      if (files.read(ino, read, at) != page || read != data) {
        ++lost;
      }
    }
    --running;
  };
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < writers; ++number) {
    threads.emplace_back(write, number);
  }
  while (running > 0) {
    files.free_removed();
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(lost == 0);
  CHECK(store.kernel.given_back > 1);
}

}  // namespace efs::free_zeros_test
