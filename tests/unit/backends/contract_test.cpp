// SPDX-License-Identifier: BSD-3-Clause
// One contract for every backend. Each case runs on memory, on a real file system, on both with a
// capacity that the daemon counts, on a virtual device of two whose second backend has the
// containers, on two backends whose containers are no files, and on one that is paced.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "backends/container_file.hpp"
#include "backends/fsdax.hpp"
#include "backends/virtual_device.hpp"
#include "base/shared_mapping.hpp"
#include "support/devdax_store.hpp"
#include "support/device_pace.hpp"
#include "support/hole_searches.hpp"
#include "support/slab_backend.hpp"
#include "support/temp.hpp"

namespace efs::contract_test {

namespace {

constexpr std::uint64_t capacity = 8u << 20;

enum class Way : std::uint8_t { files, slab, devdax, paced };

struct Kind {
  const char* parent;
  bool strict = false;
  bool several = false;
  Way way = Way::files;
};

constexpr Kind slab{"/dev/shm", true, false, Way::slab},
    on_device{"/dev/shm", true, false, Way::devdax}, paced{"/tmp", true, false, Way::paced};

/// Sleeps in no time.
struct FastClock final : test::PaceClock {
  test::Moment time{0};

  test::Moment now() override { return time; }

  void sleep_until(test::Moment moment) override { time = std::max(time, moment); }
};

std::unique_ptr<Backend> make_one(UniqueFd directory, bool strict, std::size_t open_containers) {
  FsdaxOptions options;
  options.directory = std::move(directory);
  if (strict) {
    options.capacity = capacity;
  }
  options.strict = strict;
  options.open_containers = open_containers;
  auto backend = make_fsdax(std::move(options));
  REQUIRE(backend);
  return std::move(*backend);
}

std::unique_ptr<Backend> make(const test::TempDirectory& directory, const Kind& kind,
                              std::size_t open_containers = 512) {
  if (kind.way == Way::slab) {
    return test::make_slab({.path = directory.path() + "/slab", .size = capacity}).value();
  }
  if (kind.way == Way::devdax) {
    return test::make_devdax_store(directory.path() + "/device", {.capacity = capacity}).backend;
  }
  if (kind.way == Way::paced) {
    static FastClock clock;
    return test::make_paced(make_one(directory.open(), kind.strict, open_containers),
                            {.bytes_per_second = 1'000'000, .calls_per_second = 1000}, clock);
  }
  if (!kind.several) {
    return make_one(directory.open(), kind.strict, open_containers);
  }
  VirtualDeviceOptions options{.members = {}, .new_containers = 1, .spill = false};
  for (const char* name : {"a", "b"}) {
    const std::string path = directory.path() + "/" + name;
    ::mkdir(path.c_str(), 0700);
    options.members.push_back(
        {.id = name,
         .backend = make_one(UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                             kind.strict, open_containers)});
  }
  return std::move(*make_virtual_device(std::move(options)));
}

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> data(size);
  for (std::size_t i = 0; i < size; ++i) {
    data[i] = static_cast<std::byte>((i * 131 + seed) >> 3);
  }
  return data;
}

}  // namespace

TEST_CASE("a container is opened and removed under its own number only") {
  const auto kind = GENERATE(Kind{"/dev/shm"}, Kind{"/tmp"}, Kind{"/tmp", true, true});
  const test::TempDirectory directory(kind.parent);
  const std::string data = directory.path() + (kind.several ? "/b/" : "/"),
                    one = data + "01/0000000000000001", three = data + "03/0000000000000003",
                    four = data + "04/0000000000000004";
  {
    auto made = make(directory, kind);
  }
  if (::setxattr(data.c_str(), label_name, "1", 1, 0) != 0) {
    SKIP("no extended attributes on " << kind.parent);
  }
  {
    auto backend = make(directory, kind);
    for (const std::uint64_t id : {1, 2, 3}) {
      REQUIRE(backend->create(id));
    }
  }
  CHECK(make(directory, kind)->open(1));
  std::filesystem::rename(one, four);
  std::filesystem::rename(three, one);
  REQUIRE(::removexattr((data + "02/0000000000000002").c_str(), label_name) == 0);
  auto backend = make(directory, kind);
  const auto other = backend->open(4), none = backend->open(2);
  REQUIRE_FALSE(other);
  CHECK(other.error().code == EUCLEAN);
  CHECK(other.error().what.find("container 4 is labelled as another one's") != std::string::npos);
  REQUIRE_FALSE(none);
  CHECK(none.error().what.find("container 2 has lost its label") != std::string::npos);
  CHECK_FALSE(backend->remove(4));
  CHECK(std::filesystem::exists(four));
  CHECK(backend->ownership(4) == Ownership::another);  // it is known where it is
  // Empty, as power loss can leave it, it can become this store's.
  CHECK(backend->ownership(2) == Ownership::unfinished);
  REQUIRE(backend->label(2));
  CHECK(backend->ownership(2) == Ownership::own);
  CHECK(make(directory, kind)->open(2));
  REQUIRE(::removexattr((data + "02/0000000000000002").c_str(), label_name) == 0);
  // A sealed container is shared and belongs to no store; opening it makes it this store's.
  ::chmod((data + "02/0000000000000002").c_str(), 0700);
  REQUIRE(backend->open(2));
  REQUIRE(backend->label(2));
  ::chmod((data + "02/0000000000000002").c_str(), 0600);
  CHECK(make(directory, kind)->open(2));
}

TEST_CASE("what a container takes before it holds anything is counted") {
  const test::TempDirectory directory("/tmp");
  REQUIRE(::setxattr(directory.path().c_str(), label_name, "1", 1, 0) == 0);
  auto backend = make(directory, {"/tmp", true});
  const auto before = backend->space().used;
  for (std::uint64_t id = 1; id <= 50; ++id) {
    REQUIRE(backend->create(id));
    struct stat st = *backend->attributes(id);
    CHECK(backend->space().used == before + static_cast<std::uint64_t>(st.st_blocks) * 512);
    backend->remove(id);
    CHECK(backend->space().used == before);
  }
}

TEST_CASE("containers hold bytes, grow, shrink and have holes") {
  const auto kind =
      GENERATE(Kind{"/dev/shm"}, Kind{"/dev/shm", true}, Kind{"/tmp"}, Kind{"/tmp", true},
               Kind{"/dev/shm", false, true}, Kind{"/tmp", true, true}, slab, on_device, paced);
  const test::TempDirectory directory(kind.parent);
  auto backend = make(directory, kind);
  auto container = backend->create(42);
  REQUIRE(container);
  CHECK(backend->create(42).error().code == EEXIST);
  const auto data = pattern(100'000, 1);
  REQUIRE((*container)->write(data, 1u << 20) == data.size());
  CHECK((*container)->attributes()->st_size == (1 << 20) + 100'000);
  std::vector<std::byte> back(data.size());
  REQUIRE((*container)->read(back, 1u << 20) == data.size());
  CHECK(back == data);
  REQUIRE((*container)->read(back, 0) == data.size());
  CHECK(back == std::vector<std::byte>(data.size()));
  CHECK((*container)->seek(0, SEEK_DATA).value() <= 1u << 20);
  CHECK((*container)->seek(1u << 21, SEEK_DATA).error().code == ENXIO);
  // Shrunk and grown again: zeros, not what was there.
  REQUIRE((*container)->truncate((1u << 20) + 10));
  REQUIRE((*container)->truncate((1u << 20) + 20));
  REQUIRE((*container)->read(std::span(back).first(20), 1u << 20) == 20);
  CHECK(back[9] == data[9]);
  CHECK(back[10] == std::byte{0});
  CHECK((*container)->read(back, 1u << 22) == 0);
  REQUIRE((*container)->sync(true));
}

TEST_CASE("a container is found again, its times can be set, and removed it is gone") {
  const auto kind =
      GENERATE(Kind{"/dev/shm"}, Kind{"/tmp"}, Kind{"/tmp", false, true}, slab, on_device, paced);
  const test::TempDirectory directory(kind.parent);
  auto backend = make(directory, kind, 4);
  for (std::uint64_t id = 1; id <= 100; ++id) {
    REQUIRE((*backend->create(id))->write(pattern(10, static_cast<unsigned>(id)), 0) == 10);
  }
  for (std::uint64_t id = 1; id <= 100; ++id) {
    std::vector<std::byte> back(10);
    REQUIRE((*backend->open(id))->read(back, 0) == 10);
    CHECK(back == pattern(10, static_cast<unsigned>(id)));
  }
  REQUIRE(backend->set_times(7, 1'000'000'001, std::nullopt));
  REQUIRE(backend->set_times(7, std::nullopt, 2'000'000'000'000'000'002));
  CHECK(to_ns(backend->attributes(7)->st_atim) == 1'000'000'001);
  CHECK(to_ns(backend->attributes(7)->st_mtim) == 2'000'000'000'000'000'002);
  const auto by_id = GENERATE(true, false);
  const auto touched = backend->open(7);
  REQUIRE((by_id ? backend->set_times(7, stamp_now, stamp_now)
                 : (*touched)->set_times(stamp_now, stamp_now)));
  const FileTime now = (*touched)->attributes()->st_mtim;
  CHECK(now == FileTime((*touched)->attributes()->st_atim));
  CHECK(std::abs(now.seconds - wall_time().seconds) < 60);
  REQUIRE((*touched)->write(pattern(10, 7), 0) == 10);
  CHECK(FileTime((*touched)->attributes()->st_mtim) >= now);
  auto held = backend->open(8);
  backend->remove(8);
  backend->remove(8);
  CHECK(backend->open(8).error().code == ENOENT);
  std::vector<std::byte> back(10);
  CHECK((*held)->read(back, 0) == 10);  // the last reader still has it
}

TEST_CASE("a counted capacity ends with ENOSPC and gives space back") {
  const auto kind = GENERATE(Kind{"/dev/shm", true}, Kind{"/tmp", true}, Kind{"/tmp", true, true},
                             slab, on_device, paced);
  const test::TempDirectory directory(kind.parent);
  auto backend = make(directory, kind);
  CHECK_FALSE(backend->offers_descriptor());
  auto container = *backend->create(1);
  const auto data = pattern(1u << 20, 3);
  std::uint64_t written = 0;
  Result<std::size_t> last = 0;
  while ((last = container->write(data, written)) && *last > 0) {
    written += *last;
  }
  CHECK(last.error().code == ENOSPC);
  CHECK(written <= capacity);
  CHECK(written >= capacity - (64u << 10));
  CHECK(backend->space().available < 64u << 10);
  CHECK(container->allocate(0, 1u << 30, 1u << 20).error().code == ENOSPC);
  // Existing data may be overwritten, and a hole of any size takes no space.
  CHECK(container->write(data, 0) == data.size());
  CHECK(container->truncate(1ull << 40));
  REQUIRE(container->allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4u << 20));
  CHECK(backend->space().available >= 3u << 20);
  CHECK(container->write(data, 0) == data.size());
  container.reset();
  backend->remove(1);
  CHECK(backend->space().used == 0);
}

TEST_CASE("where space is ample a write of a counted store looks for no holes") {
  const auto kind = GENERATE(Kind{"/dev/shm", true}, Kind{"/tmp", true});
  const test::TempDirectory directory(kind.parent);
  auto backend = make(directory, kind);
  auto container = *backend->create(1);
  const auto data = pattern(4096, 3);
  const auto before = test::hole_searches();
  for (int i = 0; i < 10; ++i) {
    REQUIRE(container->write(data, 4096) == data.size());
    REQUIRE(container->write(data, 4096 * (i + 1)) == data.size());
  }
  CHECK(test::hole_searches() == before);
  CHECK(backend->space().used >= 10 * data.size());
  CHECK(backend->space().used < 12 * data.size());
  CHECK(container->seek(0, SEEK_HOLE) == 0);
  CHECK(test::hole_searches() == before + 1);
}

TEST_CASE("a container that is no file shares none") {
  const auto kind = GENERATE(slab, on_device);
  const test::TempDirectory directory("/dev/shm"), other("/dev/shm");
  auto of_slab = make(directory, kind), of_files = make(other, Kind{"/dev/shm"});
  const auto no_file = *of_slab->create(1), file = *of_files->create(1);
  CHECK_FALSE(no_file->descriptor());
  CHECK(file->descriptor());
  CHECK(of_slab->adopt(2, *file).error().code == EXDEV);
  CHECK(of_files->adopt(2, *no_file).error().code == EXDEV);
  CHECK_FALSE(no_file->clone(*file));
  CHECK(file->clone(*no_file).error().code == EOPNOTSUPP);
}

TEST_CASE("a clone has the other container's bytes and is counted, or there is none") {
  const auto kind = GENERATE(Kind{"/dev/shm", true}, Kind{"/tmp", true});
  const test::TempDirectory directory(kind.parent);
  auto backend = make(directory, kind);
  const auto one = *backend->create(1), two = *backend->create(2);
  const auto data = pattern(1u << 20, 5);
  REQUIRE(one->write(data, 0) == data.size());
  const auto before = backend->space().used;
  std::vector<std::byte> back(data.size());
  if (two->clone(*one)) {
    CHECK(backend->space().used >= before + data.size());
    REQUIRE(two->read(back, 0) == data.size());
    CHECK(back == data);
  } else {
    CHECK(backend->space().used == before);
    CHECK(two->attributes()->st_size == 0);
  }
}

TEST_CASE("what is stored in a segment is in the container, before and after it is moved") {
  const test::TempDirectory directory("/dev/shm");
  auto backend = make(directory, slab);
  const auto container = *backend->create(1), other = *backend->create(2);
  const auto window = 1u << 20;
  const auto segment = *container->map(0, window);
  const auto data = pattern(10'000, 3);
  // Blocks of both take turns: no container is in one piece.
  for (std::uint64_t at = 0; at < 10 * data.size(); at += data.size()) {
    REQUIRE(container->allocate(0, at, data.size()));
    REQUIRE(other->write(data, at) == data.size());
    segment->store(at, data);
  }
  std::vector<std::byte> back(data.size());
  const auto has = [&](std::uint64_t at) {
    return container->read(back, at) == data.size() && back == data &&
           std::ranges::equal(segment->bytes().subspan(at, data.size()), data);
  };
  CHECK(has(0));
  CHECK(has(9 * data.size()));
  // Given back and taken again, the range shows zeros, and then what is stored.
  REQUIRE(container->truncate(0));
  REQUIRE(other->write(data, 20 * data.size()) == data.size());
  REQUIRE(container->allocate(0, 0, data.size()));
  CHECK(std::ranges::all_of(segment->bytes().first(data.size()),
                            [](std::byte byte) { return byte == std::byte{0}; }));
  segment->store(0, data);
  CHECK(has(0));
  REQUIRE(other->read(back, 20 * data.size()) == data.size());
  CHECK(back == data);
  CHECK(backend->is_written(1));
}

TEST_CASE("an advisory capacity turns writers away when it is used up") {
  const test::TempDirectory directory("/tmp");
  FsdaxOptions options;
  options.directory = directory.open();
  options.capacity = 1u << 20;
  auto backend = *make_fsdax(std::move(options));
  CHECK(backend->offers_descriptor());
  CHECK(backend->admit_writer());
  REQUIRE((*backend->create(1))->write(pattern(2u << 20, 1), 0));
  // The scan behind it is rate-limited: ask until it has been made again, at most some seconds.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Status admitted;
  while ((admitted = backend->admit_writer()) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  REQUIRE_FALSE(admitted);
  CHECK(admitted.error().code == ENOSPC);
  CHECK(backend->space().available == 0);
}

TEST_CASE("a container can be a file that is there already, under one more name") {
  const auto strict = GENERATE(false, true);
  const test::TempDirectory directory("/dev/shm"), other("/dev/shm"), elsewhere("/tmp");
  auto backend = make(directory, Kind{"/dev/shm", strict});
  const auto data = pattern(1u << 20, 3);
  const auto file = [&](const test::TempDirectory& where, std::size_t size) {
    UniqueFd fd(::open((where.path() + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(::pwrite(fd.get(), data.data(), size, 0) == static_cast<ssize_t>(size));
    return std::make_shared<ContainerFile>(std::move(fd), nullptr, false, false);
  };
  const auto shared = file(other, data.size());
  const auto before = backend->space();
  auto container = backend->adopt(7, *shared);
  REQUIRE(container);
  std::vector<std::byte> back(data.size());
  REQUIRE((*container)->read(back, 0) == data.size());
  CHECK(back == data);
  CHECK(backend->attributes(7)->st_nlink == 2);
  CHECK(backend->adopt(7, *shared).error().code == EEXIST);
  if (strict) {
    CHECK(backend->space().used == before.used + data.size());  // it counts, and once
  }
  CHECK(backend->remove(7) == data.size());
  if (strict) {
    CHECK(backend->space().used == before.used);
  }
  CHECK(std::filesystem::exists(other.path() + "/file"));
  CHECK(backend->adopt(8, *file(elsewhere, 100)).error().code == EXDEV);
  if (!strict) {
    return;
  }
  REQUIRE(shared->allocate(0, 0, capacity + 4096));
  CHECK(backend->adopt(9, *shared).error().code == ENOSPC);
  CHECK(backend->space().used == before.used);
}

TEST_CASE("a directory that takes no MAP_SYNC is not persistent memory") {
  const auto kind = GENERATE(Kind{"/dev/shm"}, Kind{"/tmp"});
  const test::TempDirectory directory(kind.parent);
  const UniqueFd file(
      ::open((directory.path() + "/probe").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(::ftruncate(file.get(), 4096) == 0);
  const SharedMapping mapping = map_shared(file.get(), 4096, 0);
  REQUIRE(mapping.address != nullptr);
  ::munmap(mapping.address, 4096);
  const char* forced = std::getenv("PMEM_IS_PMEM_FORCE");
  const bool persistent = mapping.synchronous || (forced != nullptr && std::string(forced) == "1");
  const test::TempDirectory store(kind.parent);
  const Durability found = make(store, kind)->durability();
  if (found != Durability::volatile_memory) {
    CHECK((found == Durability::cache_line) == persistent);
  }
  CHECK((persistent || found != Durability::cache_line));
}

}  // namespace efs::contract_test
