// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/devdax.hpp"

#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "support/devdax_store.hpp"
#include "support/temp.hpp"

namespace efs::devdax {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t unit = 64;  // of blocks of 32 KiB

Bytes random_bytes(std::uint64_t size, std::uint64_t from) {
  std::mt19937_64 random(from);
  Bytes data(size);
  for (auto& byte : data) {
    byte = static_cast<std::byte>(random() | 1);
  }
  return data;
}

Bytes content_of(Container& container) {
  Bytes data(static_cast<std::uint64_t>(container.attributes()->st_size));
  REQUIRE(container.read(data, 0) == data.size());
  return data;
}

std::uint64_t used(const test::DevdaxStore& store) {
  return store.backend->space().used;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

/// Random operations on some containers, compared with plain vectors.
class ContentTrial {
 public:
  ContentTrial(std::string path, test::DevdaxStoreOptions options, std::uint64_t seed)
      : path_(std::move(path)), options_(options), random_(seed) {
    options_.log = std::make_shared<test::MemoryLog>();
    store_ = test::make_devdax_store(path_, options_);
  }

  void step() {
    const std::uint64_t id = 1 + below(6);
    if (!containers_.contains(id)) {
      containers_[id] = *store_.backend->create(id);
    }
    Container& container = *containers_[id];
    Bytes& model = models_[id];
    const std::uint64_t offset = below(below(2) == 0 ? model.size() + 10'000 : model.size() + 1);
    switch (below(12)) {
      case 0: truncate(container, model, below(300'000)); break;
      case 1: truncate(container, model, model.size() / 2); break;
      case 2: allocate(container, model, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset); break;
      case 3: allocate(container, model, FALLOC_FL_ZERO_RANGE, offset); break;
      case 4: allocate(container, model, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset); break;
      case 5: allocate(container, model, 0, offset); break;
      case 6: allocate(container, model, FALLOC_FL_KEEP_SIZE, offset); break;
      case 7: remove(id); break;
      case 8: write(container, model, model.size()); break;
      default: write(container, model, offset); break;
    }
  }

  void check() {
    for (const auto& [id, container] : containers_) {
      INFO("container " << id);
      REQUIRE(content_of(*container) == models_[id]);
      check_holes(*container, models_[id]);
    }
  }

  /// Ends the backend, and makes one from the states that the log has.
  void reopen() {
    std::map<std::uint64_t, struct stat> before;
    for (const auto& [id, container] : containers_) {
      REQUIRE(container->sync(true));
      before[id] = *container->attributes();
    }
    const std::uint64_t used_before = used(store_);
    containers_.clear();
    store_ = {};
    // A container without a record is an empty file, which the namespace creates again.
    options_.contents = options_.log->contents();
    store_ = test::make_devdax_store(path_, options_);
    for (const auto& [id, st] : before) {
      auto opened = store_.backend->open(id);
      containers_[id] = opened ? *opened : *store_.backend->create(id);
      const auto now = containers_[id]->attributes();
      CHECK(now->st_size == st.st_size);
      CHECK(now->st_blocks == st.st_blocks);
    }
    CHECK(used(store_) == used_before);
  }

  void remove_all() {
    for (auto& [id, container] : containers_) {
      container.reset();
      CHECK(store_.backend->remove(id));
    }
    containers_.clear();
    CHECK(used(store_) == 0);
  }

 private:
  std::uint64_t below(std::uint64_t bound) {
    return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(random_);
  }

  void write(Container& container, Bytes& model, std::uint64_t offset) {
    const Bytes data = random_bytes(1 + below(below(2) == 0 ? 500 : 100'000), random_());
    const auto done = container.write(data, offset);
    if (!done) {
      REQUIRE(done.error().code == ENOSPC);
      return;
    }
    REQUIRE(*done <= data.size());
    model.resize(std::max<std::uint64_t>(model.size(), offset + *done));
    std::copy_n(data.begin(), *done, model.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  static void truncate(Container& container, Bytes& model, std::uint64_t size) {
    REQUIRE(container.truncate(size));
    model.resize(size);
  }

  void allocate(Container& container, Bytes& model, int mode, std::uint64_t offset) {
    const std::uint64_t length = 1 + below(100'000), end = offset + length;
    const auto status = container.allocate(mode, offset, length);
    if (!status) {
      REQUIRE(status.error().code == ENOSPC);
      REQUIRE((mode & FALLOC_FL_PUNCH_HOLE) == 0);
      return;
    }
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0) {
      model.resize(std::max<std::uint64_t>(model.size(), end));
    }
    if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0 && offset < model.size()) {
      std::fill(
          model.begin() + static_cast<std::ptrdiff_t>(offset),
          model.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(end, model.size())),
          std::byte{0});
    }
  }

  void remove(std::uint64_t id) {
    containers_.erase(id);
    models_.erase(id);
    options_.log->removed(id);
    REQUIRE(store_.backend->remove(id));
  }

  // All bytes that are not data are zero, and the two kinds take turns to the end.
  static void check_holes(Container& container, const Bytes& model) {
    for (std::uint64_t at = 0; at < model.size();) {
      const auto data = container.seek(at, SEEK_DATA);
      const std::uint64_t begin = data.value_or(model.size());
      REQUIRE(is_zero(std::span(model).subspan(at, begin - at)));
      if (!data) {
        CHECK(data.error().code == ENXIO);
        break;
      }
      at = container.seek(begin, SEEK_HOLE).value();
      REQUIRE(at > begin);
    }
  }

  const std::string path_;
  test::DevdaxStoreOptions options_;
  std::mt19937_64 random_;
  test::DevdaxStore store_;
  std::map<std::uint64_t, std::shared_ptr<Container>> containers_;
  std::map<std::uint64_t, Bytes> models_;
};

}  // namespace

TEST_CASE("contents agree with a model, and after a rebuild from the log", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  const auto first = test::seed();
  // A small device is full most of the time.
  const auto capacity = GENERATE(8U << 20U, 1U << 20U);
  const bool zeroes = GENERATE(false, true);
  for (std::uint64_t seed = first; seed < first + 4; ++seed) {
    INFO("seed " << seed << ", capacity " << capacity);
    ContentTrial trial(directory.path() + "/device" + std::to_string(seed - first),
                       {.capacity = capacity, .zero_before_use = zeroes}, seed);
    for (int i = 0; i < 300; ++i) {
      trial.step();
      if (i % 60 == 59) {
        trial.check();
        trial.reopen();
        trial.check();
      }
    }
    trial.remove_all();
  }
}

TEST_CASE("new bytes are on the device before the log hears of them", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  auto store = test::make_devdax_store(directory.path() + "/device", {});
  const auto container = *store.backend->create(1);
  const Bytes data = random_bytes(100'000, 1);
  std::uint64_t seen = 0;
  store.log->on_change = [&](const ContentChange& change) {
    CHECK(change.size == data.size());
    for (const auto& extent : change.extents) {
      const auto length = std::min(extent.length, data.size() - extent.offset);
      CHECK(std::memcmp(store.device->bytes().data() + extent.device, data.data() + extent.offset,
                        length) == 0);
      seen += length;
    }
  };
  REQUIRE(container->write(data, 0) == data.size());
  CHECK(seen == data.size());
  // In place: no extent changes, and the log hears of the times alone.
  const auto position = store.log->position();
  const auto touches = store.log->touches();
  REQUIRE(container->write(std::span(data).first(5000), 0) == 5000);
  CHECK(store.log->position() == position);
  CHECK(store.log->touches() == touches + 1);
  const auto content = store.backend->content(1);
  REQUIRE(content);
  CHECK(content->mtime == FileTime(container->attributes()->st_mtim));
  CHECK(content->size == data.size());
  CHECK(store.backend->content(2).error().code == ENOENT);
}

TEST_CASE("truncate and punch give space back when their records are durable", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  auto store = test::make_devdax_store(directory.path() + "/device", {.capacity = 1U << 20U});
  const auto container = *store.backend->create(1), other = *store.backend->create(2);
  const Bytes data = random_bytes(1U << 20U, 2);
  REQUIRE(container->write(data, 0) == data.size());
  store.log->held_at = store.log->position();
  REQUIRE(container->truncate(512U << 10U));
  REQUIRE(container->allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 256U << 10U));
  CHECK(container->attributes()->st_blocks == 512);
  CHECK(store.backend->space().available == 0);
  CHECK(other->write(std::span(data).first(1), 0).error().code == ENOSPC);
  // The bytes are still there for a restart that has not got the record.
  const auto data_begin = store.superblock.data.offset;
  CHECK(std::memcmp(store.device->bytes().data() + data_begin, data.data(), 256U << 10U) == 0);
  store.log->held_at = *store.log->held_at + 1;
  CHECK(store.backend->space().available == 512U << 10U);
  store.log->held_at.reset();
  CHECK(other->write(std::span(data).first(768U << 10U), 0) == 768U << 10U);
  CHECK(content_of(*other) == Bytes(data.begin(), data.begin() + (768 << 10)));
}

TEST_CASE("a change that the log refuses leaves the container and the space", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  auto store = test::make_devdax_store(directory.path() + "/device", {});
  const auto container = *store.backend->create(1);
  const Bytes data = random_bytes(100'000, 3);
  REQUIRE(container->write(data, 1000) == data.size());
  const auto before = used(store);
  const auto extents = store.backend->content(1)->extents;
  store.log->failure = ENOSPC;
  CHECK(container->write(data, 500'000).error().code == ENOSPC);
  CHECK(container->truncate(10).error().code == ENOSPC);
  CHECK(container->truncate(1U << 30U).error().code == ENOSPC);
  CHECK(container->allocate(0, 0, 1U << 20U).error().code == ENOSPC);
  CHECK(
      container->allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 32768, 32768).error().code ==
      ENOSPC);
  CHECK(used(store) == before);
  CHECK(store.backend->content(1)->extents == extents);
  CHECK(container->attributes()->st_size == 101'000);
  store.log->failure = 0;
  Bytes back(data.size());
  REQUIRE(container->read(back, 1000) == data.size());
  CHECK(back == data);
}

TEST_CASE("bytes of another user are zero before an extent is served", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  const std::string path = directory.path() + "/device";
  const bool zeroes = GENERATE(true, false);
  {
    auto store = test::make_devdax_store(path, {});
    const auto data = store.device->bytes().subspan(store.superblock.data.offset);
    std::memset(data.data(), 0xAA, data.size());
  }
  auto store = test::make_devdax_store(path, {.zero_before_use = zeroes});
  const Bytes one(1, std::byte{1});
  const auto small = *store.backend->create(1), large = *store.backend->create(2);
  REQUIRE(small->write(one, 100) == 1);
  REQUIRE(large->write(one, 0) == 1);
  REQUIRE(large->write(one, 1) == 1);
  REQUIRE(large->allocate(FALLOC_FL_KEEP_SIZE, 0, 200'000));
  std::uint64_t foreign = 0;
  for (const std::uint64_t id : {1, 2}) {
    const auto content = *store.backend->content(id);
    for (const auto& extent : content.extents) {
      const auto bytes = store.device->bytes().subspan(extent.device, extent.length);
      foreign += static_cast<std::uint64_t>(std::ranges::count(bytes, std::byte{0xAA}));
    }
  }
  // Without the mark the bytes behind the ends of files keep what the user's own files left.
  CHECK((foreign == 0) == zeroes);
  // Visible they are in no case.
  REQUIRE(small->truncate(5000));
  REQUIRE(large->truncate(200'000));
  Bytes expected(5000);
  expected[100] = std::byte{1};
  CHECK(content_of(*small) == expected);
  const Bytes grown = content_of(*large);
  CHECK(is_zero(std::span(grown).subspan(2)));
}

TEST_CASE("a poisoned line is EIO for its range", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  const std::string path = directory.path() + "/device";
  auto store = test::make_devdax_store(path, {});
  auto container = *store.backend->create(1);
  const Bytes data = random_bytes(200'000, 4);
  REQUIRE(container->write(data, 0) == data.size());
  const auto extents = store.backend->content(1)->extents;
  REQUIRE(extents.size() == 1);
  store.backend->set_unreadable({.offset = extents[0].device + 100'000, .length = 64});
  Bytes back(data.size());
  REQUIRE(container->read(back, 0) == 100'000);
  CHECK(std::equal(back.begin(), back.begin() + 100'000, data.begin()));
  CHECK(container->read(back, 100'000).error().code == EIO);
  CHECK(container->read(back, 100'063).error().code == EIO);
  REQUIRE(container->read(back, 100'064) == data.size() - 100'064);
  CHECK(std::equal(data.begin() + 100'064, data.end(), back.begin()));
  CHECK(container->write(std::span(data).first(10), 100'060).error().code == EIO);
  CHECK(container->write(std::span(data).first(10), 90'000) == 10);
  // Freed, the line is not allocated again. Nor is it after a start that knows of it.
  REQUIRE(container->truncate(0));
  CHECK(used(store) == 2 * unit);  // the range begins within a unit
  const auto whole = random_bytes(8U << 20U, 5);
  CHECK(container->write(whole, 0) == whole.size() - 2 * unit);
  const DeviceRange bad{.offset = store.superblock.data.offset + 64, .length = 1};
  container.reset();
  store = {};
  store = test::make_devdax_store(path, {.unreadable = {bad}});
  CHECK(used(store) == unit);
  container = *store.backend->create(1);
  CHECK(container->write(whole, 0) == whole.size() - unit);
}

TEST_CASE("a file of many small appends has few extents", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  auto store = test::make_devdax_store(directory.path() + "/device", {.capacity = 16U << 20U});
  const auto one = *store.backend->create(1), other = *store.backend->create(2);
  const Bytes data = random_bytes(1000, 6);
  Bytes expected;
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(one->write(data, expected.size()) == data.size());
    REQUIRE(other->write(data, expected.size()) == data.size());
    expected.insert(expected.end(), data.begin(), data.end());
  }
  CHECK(content_of(*one) == expected);
  CHECK(content_of(*other) == expected);
  // both grow at once, block by block
  CHECK(store.backend->content(1)->extents.size() <= 1'000'000 / (32 << 10) + 12);
  CHECK(store.backend->space().used <= 2 * (1'000'000 + (32U << 10U) + unit));
  // A file that is written at once takes its bytes.
  const auto exact = *store.backend->create(3);
  const auto before = used(store);
  REQUIRE(exact->write(data, 0) == data.size());
  CHECK(used(store) - before == round_up(data.size(), unit));
}

TEST_CASE("threads write to one file and to many", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  auto store = test::make_devdax_store(directory.path() + "/device", {.capacity = 32U << 20U});
  constexpr std::uint64_t threads = 4, parts = 40, part_bytes = 30'000;
  const auto shared = *store.backend->create(100);
  std::vector<std::thread> running;
  std::vector<int> failures(threads);
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < parts; ++i) {
        const Bytes data(part_bytes, static_cast<std::byte>(1 + thread));
        const auto own = *store.backend->create(1000 * (thread + 1) + i);
        failures[thread] += own->write(data, 0) == data.size() ? 0 : 1;
        failures[thread] +=
            shared->write(data, (i * threads + thread) * part_bytes) == data.size() ? 0 : 1;
        Bytes back(part_bytes);
        failures[thread] +=
            shared->read(back, (i * threads + thread) * part_bytes) == back.size() && back == data
                ? 0
                : 1;
        failures[thread] += i % 2 == 0 || own->truncate(10) ? 0 : 1;
      }
    });
  }
  for (auto& one : running) {
    one.join();
  }
  CHECK(failures == std::vector<int>(threads));
  const Bytes whole = content_of(*shared);
  for (std::uint64_t at = 0; at < whole.size(); ++at) {
    if (whole[at] != static_cast<std::byte>(1 + at / part_bytes % threads)) {
      FAIL("byte " << at);
    }
  }
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    const auto own = *store.backend->open(1000 * (thread + 1));
    CHECK(content_of(*own) == Bytes(part_bytes, static_cast<std::byte>(1 + thread)));
  }
}

TEST_CASE("a removed container keeps its space until its last user closes it", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  auto store = test::make_devdax_store(directory.path() + "/device", {});
  auto container = *store.backend->create(1);
  const Bytes data = random_bytes(40'000, 7);
  REQUIRE(container->write(data, 0) == data.size());
  CHECK(store.backend->is_written(1));
  CHECK(store.backend->remove(1) == round_up(data.size(), unit));
  CHECK_FALSE(store.backend->is_written(1));
  CHECK(used(store) == round_up(data.size(), unit));
  CHECK(content_of(*container) == data);
  container.reset();
  CHECK(used(store) == 0);
  const auto reader = *store.backend->create(2);
  const auto only = *store.backend->open(2, CachePolicy::only_read);
  CHECK(only->write(data, 0).error().code == EBADF);
  CHECK(only->truncate(0).error().code == EBADF);
  CHECK(only->allocate(0, 0, 1).error().code == EBADF);
  CHECK(only->map(0, 4096).error().code == ENOTSUP);
  CHECK(reader->allocate(FALLOC_FL_COLLAPSE_RANGE, 0, 4096).error().code == EOPNOTSUPP);
  CHECK(reader->allocate(0, 0, 0).error().code == EINVAL);
  CHECK(reader->write(data, INT64_MAX - 5).error().code == EFBIG);
  CHECK(reader->truncate(UINT64_MAX).error().code == EFBIG);
}

TEST_CASE("a rebuild refuses contents that contradict each other", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  const std::string path = directory.path() + "/device";
  auto store = test::make_devdax_store(path, {});
  const auto begin = store.superblock.data.offset;
  store.backend.reset();
  const auto refused = [&](std::vector<StoredContent> contents) {
    const auto made = make_devdax({.device = store.device,
                                   .superblock = store.superblock,
                                   .log = store.log,
                                   .contents = std::move(contents),
                                   .unreadable = {}});
    if (made) {
      return std::string();
    }
    CHECK(made.error().code == EUCLEAN);
    return made.error().what;
  };
  const auto content = [](std::uint64_t id, std::vector<Extent> extents) {
    return StoredContent{.id = id, .size = 64, .extents = std::move(extents)};
  };
  const Extent one{.offset = 0, .device = begin, .length = 128};
  CHECK(refused({content(1, {one})}).empty());
  CHECK(refused({content(1, {one}), content(2, {one})}).starts_with("container 2: extent of 128"));
  CHECK(refused({content(1, {one}), content(1, {})}).find("twice") != std::string::npos);
  CHECK(
      refused({content(7, {{.offset = 0, .device = 0, .length = 64}})}).starts_with("container 7"));
  CHECK_FALSE(
      refused({content(1, {one, {.offset = 64, .device = begin + 4096, .length = 64}})}).empty());
  CHECK_FALSE(refused({content(1, {{.offset = 5, .device = begin, .length = 64}})}).empty());
}

}  // namespace efs::devdax
