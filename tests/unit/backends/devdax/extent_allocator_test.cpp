// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/extent_allocator.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <random>
#include <vector>

#include "support/temp.hpp"

namespace efs::devdax {
namespace {

constexpr std::uint64_t small_block = 32U << 10U, large_block = 2U << 20U;

BlockLayout layout_of(std::uint64_t block, std::uint64_t blocks) {
  return {.offset = 4 * block, .blocks = blocks, .block = block};
}

std::uint64_t total(const std::vector<DeviceRange>& ranges) {
  std::uint64_t sum = 0;
  for (const auto& range : ranges) {
    sum += range.length;
  }
  return sum;
}

/// A list with one element, as quarantine() takes it.
std::list<ExtentAllocator::Quarantined> freed_at(std::uint64_t position,
                                                 std::vector<DeviceRange> ranges) {
  std::list<ExtentAllocator::Quarantined> one;
  one.push_back({.position = position, .ranges = std::move(ranges)});
  return one;
}

/// Every unit in a vector.
class NaiveModel {
 public:
  explicit NaiveModel(const BlockLayout& layout)
      : layout_(layout), used_(layout.bytes() / layout.unit()) {}

  bool is_all(const DeviceRange& range, bool used) const {
    const std::uint64_t first = (range.offset - layout_.offset) / layout_.unit();
    return std::all_of(
        used_.begin() + static_cast<std::ptrdiff_t>(first),
        used_.begin() + static_cast<std::ptrdiff_t>(first + range.length / layout_.unit()),
        [used](bool one) { return one == used; });
  }

  void set(const DeviceRange& range, bool used) {
    const std::uint64_t first = (range.offset - layout_.offset) / layout_.unit();
    for (std::uint64_t i = 0; i < range.length / layout_.unit(); ++i) {
      free_ += static_cast<std::uint64_t>(used_[first + i]) - static_cast<std::uint64_t>(used);
      used_[first + i] = used;
    }
  }

  std::uint64_t available() const { return free_ * layout_.unit(); }

 private:
  BlockLayout layout_;
  std::vector<bool> used_;
  std::uint64_t free_ = used_.size();
};

bool is_sound(const BlockLayout& layout, const DeviceRange& range) {
  return range.length != 0 && range.offset % layout.unit() == 0 &&
         range.length % layout.unit() == 0 && range.offset >= layout.offset &&
         range.end() <= layout.offset + layout.bytes();
}

/// Random operations, each compared with the model.
class Trial {
 public:
  Trial(const BlockLayout& layout, std::uint64_t seed)
      : layout_(layout), allocator_(layout), model_(layout), random_(seed) {}

  void step() {
    const auto choice = below(100);
    if (choice < 50) {
      allocate();
    } else if (choice < 75) {
      free_part();
    } else if (choice < 90) {
      quarantine();
    } else {
      release(position_ - std::min(position_, below(3)));
    }
    REQUIRE(allocator_.space().available == model_.available());
    REQUIRE(allocator_.space().quarantined == total(in_quarantine()));
  }

  /// Rebuilds the allocator from its extents; from here on the new one is tried.
  void rebuild() {
    release(position_);
    ExtentAllocator rebuilt(layout_);
    std::ranges::shuffle(owned_, random_);
    for (const auto& range : owned_) {
      REQUIRE(rebuilt.claim(range));
    }
    REQUIRE(rebuilt.space().available == model_.available());
    for (const auto& range : owned_) {
      const auto again = rebuilt.claim(range);
      REQUIRE_FALSE(again);
      CHECK(again.error().code == EUCLEAN);
    }
    allocator_ = std::move(rebuilt);
  }

  void free_all() {
    release(position_);
    for (const auto& range : owned_) {
      REQUIRE(allocator_.free(range));
      CHECK_FALSE(allocator_.free(range));
    }
    owned_.clear();
    CHECK(allocator_.space().available == layout_.bytes());
    // In one piece again: no block remains divided.
    CHECK(allocator_.allocate(layout_.bytes(), layout_.offset).size() == 1);
  }

 private:
  std::uint64_t below(std::uint64_t bound) {
    return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(random_);
  }

  void allocate() {
    const std::uint64_t bytes = 1 + below(below(2) == 0 ? 8 * layout_.unit() : 3 * layout_.block);
    const std::uint64_t hint =
        owned_.empty() || below(2) == 0 ? 0 : owned_[below(owned_.size())].end();
    const auto got = allocator_.allocate(bytes, hint);
    REQUIRE(total(got) == std::min(round_up(bytes, layout_.unit()), model_.available()));
    for (const auto& range : got) {
      REQUIRE(is_sound(layout_, range));
      REQUIRE(model_.is_all(range, false));
      model_.set(range, true);
      owned_.push_back(range);
    }
  }

  // Takes the begin, the middle or the end of an extent away from owned_.
  DeviceRange cut() {
    const auto which = below(owned_.size());
    const DeviceRange whole = owned_[which];
    owned_.erase(owned_.begin() + static_cast<std::ptrdiff_t>(which));
    const std::uint64_t units = whole.length / layout_.unit();
    const std::uint64_t first = below(3) == 0 ? below(units) : 0;
    const std::uint64_t count = below(2) == 0 ? units - first : 1 + below(units - first);
    const DeviceRange part{.offset = whole.offset + first * layout_.unit(),
                           .length = count * layout_.unit()};
    if (part.offset > whole.offset) {
      owned_.push_back({.offset = whole.offset, .length = part.offset - whole.offset});
    }
    if (part.end() < whole.end()) {
      owned_.push_back({.offset = part.end(), .length = whole.end() - part.end()});
    }
    return part;
  }

  void free_part() {
    if (owned_.empty()) {
      return;
    }
    const DeviceRange part = cut();
    REQUIRE(allocator_.free(part));
    REQUIRE_FALSE(allocator_.free(part));
    model_.set(part, false);
  }

  void quarantine() {
    if (owned_.empty()) {
      return;
    }
    const DeviceRange part = cut();
    waiting_.emplace(++position_, part);
    allocator_.quarantine(freed_at(position_, {part}));
  }

  void release(std::uint64_t position) {
    allocator_.release(position);
    while (!waiting_.empty() && waiting_.begin()->first <= position) {
      model_.set(waiting_.begin()->second, false);
      waiting_.erase(waiting_.begin());
    }
  }

  std::vector<DeviceRange> in_quarantine() const {
    std::vector<DeviceRange> all;
    for (const auto& [position, range] : waiting_) {
      all.push_back(range);
    }
    return all;
  }

  const BlockLayout layout_;
  ExtentAllocator allocator_;
  NaiveModel model_;
  std::mt19937_64 random_;
  std::vector<DeviceRange> owned_;
  std::map<std::uint64_t, DeviceRange> waiting_;
  std::uint64_t position_ = 0;
};

}  // namespace

TEST_CASE("a set of bits finds its next member at every level", "[devdax]") {
  BitTree set(300'000);
  CHECK_FALSE(set.next(0));
  for (const std::uint64_t number : {0U, 63U, 64U, 4095U, 4096U, 262'143U, 262'144U, 299'999U}) {
    set.insert(number);
    CHECK(set.contains(number));
    CHECK(set.next(number) == number);
  }
  CHECK(set.next(1) == 63);
  CHECK(set.next(65) == 4095);
  CHECK(set.next(4097) == 262'143);
  CHECK(set.next(262'145) == 299'999);
  set.erase(299'999);
  CHECK_FALSE(set.next(262'145));
  set.erase(4095);
  CHECK(set.next(65) == 4096);
  BitTree one(1);
  one.insert(0);
  CHECK(one.next(0) == 0);
  CHECK_FALSE(one.next(1));
}

TEST_CASE("random allocations agree with a naive model, and so does a rebuild", "[devdax]") {
  const auto block = GENERATE(small_block, large_block);
  const auto first = test::seed();
  for (std::uint64_t seed = first; seed < first + 16; ++seed) {
    INFO("seed " << seed << ", block " << block);
    Trial trial(layout_of(block, block == small_block ? 40 : 5), seed);
    for (int i = 0; i < 1500; ++i) {
      trial.step();
      if (i % 500 == 499) {
        trial.rebuild();
      }
    }
    trial.free_all();
  }
}

TEST_CASE("a million files of 1 KiB take less than 3 GiB, one of 3901 bytes 4 KiB", "[devdax]") {
  const auto block = GENERATE(small_block, large_block);
  ExtentAllocator allocator(layout_of(block, (3ULL << 30U) / block));
  for (int i = 0; i < 1'000'000; ++i) {
    const auto got = allocator.allocate(1024, 0);
    if (got.size() != 1 || got[0].length != 1024) {
      FAIL("file " << i << " has " << got.size() << " extents");
    }
  }
  const auto space = allocator.space();
  CHECK(space.capacity - space.available == 1'024'000'000);
  // Whole blocks remain: at most one is divided and not full.
  const auto rest = allocator.allocate(space.available / block * block, 0);
  CHECK(rest.size() == 1);
  ExtentAllocator other(layout_of(block, 4));
  const auto got = other.allocate(3901, 0);
  REQUIRE(got.size() == 1);
  CHECK(got[0].length <= 4096);
}

TEST_CASE("a file continues where its last extent ends", "[devdax]") {
  const auto layout = layout_of(large_block, 16);
  ExtentAllocator allocator(layout);
  const auto first = allocator.allocate(large_block, 0);
  REQUIRE(first.size() == 1);
  const auto second = allocator.allocate(3 * large_block, first[0].end());
  REQUIRE(second.size() == 1);
  CHECK(second[0].offset == first[0].end());
  // Within a divided block, also after another file has got its units behind.
  const auto part = allocator.allocate(1000, 0), longer = allocator.allocate(1000, part[0].end());
  REQUIRE(longer.size() == 1);
  CHECK(longer[0].offset == part[0].end());
  const auto other = allocator.allocate(1000, 0);
  REQUIRE(allocator.free(longer[0]));
  const auto again = allocator.allocate(500, part[0].end());
  CHECK(again[0].offset == part[0].end());
  CHECK(other[0].offset == longer[0].end());
  // Whole blocks and the rest of a file lie together on an empty device.
  ExtentAllocator empty(layout);
  CHECK(empty.allocate(2 * large_block + 5000, 0).size() == 1);
}

TEST_CASE("the last bytes of a device are used, in pieces if it must be", "[devdax]") {
  const auto layout = layout_of(small_block, 4);
  ExtentAllocator allocator(layout);
  std::vector<DeviceRange> all;
  while (true) {
    const auto got = allocator.allocate(layout.unit(), 0);
    if (got.empty()) {
      break;
    }
    all.push_back(got[0]);
  }
  CHECK(all.size() == layout.bytes() / layout.unit());
  CHECK(allocator.space().available == 0);
  for (std::size_t i = 0; i < all.size(); i += 2) {
    REQUIRE(allocator.free(all[i]));
  }
  const auto got = allocator.allocate(layout.bytes(), 0);
  CHECK(total(got) == layout.bytes() / 2);
  CHECK(got.size() == all.size() / 2);
  CHECK(allocator.allocate(1, 0).empty());
}

TEST_CASE("freed extents are used again only after their record is durable", "[devdax]") {
  const auto layout = layout_of(small_block, 2);
  ExtentAllocator allocator(layout);
  const auto all = allocator.allocate(layout.bytes(), 0);
  REQUIRE(all.size() == 1);
  const DeviceRange first{.offset = layout.offset, .length = small_block},
      second{.offset = layout.offset + small_block, .length = small_block};
  allocator.quarantine(freed_at(5, {first}));
  allocator.quarantine(freed_at(7, {second}));
  CHECK(allocator.allocate(1, 0).empty());
  CHECK(allocator.space().quarantined == layout.bytes());
  allocator.release(4);
  CHECK(allocator.allocate(1, 0).empty());
  allocator.release(6);
  CHECK(allocator.space().available == small_block);
  CHECK(allocator.allocate(layout.bytes(), 0) == std::vector{first});
  allocator.release(7);
  CHECK(allocator.allocate(layout.bytes(), 0) == std::vector{second});
}

TEST_CASE("a rebuild refuses extents that overlap or are out of range", "[devdax]") {
  const auto layout = layout_of(small_block, 3);
  ExtentAllocator allocator(layout);
  const std::uint64_t unit = layout.unit(), end = layout.offset + layout.bytes();
  // Across a block's end, as the extents of two records that were joined.
  REQUIRE(allocator.claim({.offset = layout.offset + small_block - unit, .length = 2 * unit}));
  REQUIRE(allocator.claim({.offset = end - unit, .length = unit}));
  const auto refused = [&](std::uint64_t offset, std::uint64_t length) {
    const auto before = allocator.space().available;
    const auto claimed = allocator.claim({.offset = offset, .length = length});
    return !claimed && claimed.error().code == EUCLEAN &&
           claimed.error().what.find(std::to_string(offset)) != std::string::npos &&
           allocator.space().available == before;
  };
  CHECK(refused(layout.offset, small_block));
  CHECK(refused(layout.offset + small_block, unit));
  CHECK(refused(end - unit, 2 * unit));
  CHECK(refused(end, unit));
  CHECK(refused(layout.offset - unit, unit));
  CHECK(refused(0, unit));
  CHECK(refused(layout.offset, 0));
  CHECK(refused(layout.offset + 1, unit));
  CHECK(refused(layout.offset, unit - 1));
  CHECK(refused(layout.offset, UINT64_MAX - unit + 1));
  CHECK_FALSE(allocator.free({.offset = layout.offset, .length = unit}));
  CHECK_FALSE(allocator.free({.offset = end, .length = unit}));
  CHECK(allocator.space().available == layout.bytes() - 3 * unit);
}

TEST_CASE("unreadable bytes are never allocated", "[devdax]") {
  const auto layout = layout_of(small_block, 2);
  ExtentAllocator allocator(layout);
  const std::uint64_t unit = layout.unit();
  const auto used = allocator.allocate(small_block, 0);
  REQUIRE(used.size() == 1);
  const DeviceRange in_use{.offset = used[0].offset + 3 * unit + 5, .length = 1},
      in_free{.offset = layout.offset + small_block + unit, .length = 2 * unit};
  allocator.withhold(in_use);
  allocator.withhold(in_free);
  allocator.withhold({.offset = 0, .length = layout.offset});  // not of the data range
  CHECK(allocator.space().available == small_block - 2 * unit);
  REQUIRE(allocator.free(used[0]));
  CHECK(allocator.space().available == layout.bytes() - 3 * unit);
  const auto all = allocator.allocate(layout.bytes(), 0);
  CHECK(total(all) == layout.bytes() - 3 * unit);
  for (const auto& range : all) {
    CHECK((range.end() <= in_use.offset || range.offset > in_use.offset));
    CHECK((range.end() <= in_free.offset || range.offset >= in_free.end()));
  }
}

TEST_CASE("a layout has a sound block size and unit", "[devdax]") {
  CHECK(layout_of(small_block, 1).unit() == 64);
  CHECK(layout_of(large_block, 1).unit() == 256);
  CHECK(layout_of(1U << 30U, 1).unit() == 4096);
  CHECK(layout_of(large_block, 1).is_sound());
  CHECK_FALSE(layout_of(3 * small_block, 1).is_sound());
  CHECK_FALSE(layout_of(16U << 10U, 1).is_sound());
  CHECK_FALSE(layout_of(2ULL << 30U, 1).is_sound());
  CHECK_FALSE(layout_of(small_block, 0).is_sound());
  CHECK_FALSE((BlockLayout{.offset = 4096, .blocks = 1, .block = small_block}.is_sound()));
  CHECK_FALSE(layout_of(small_block, UINT64_MAX / 2).is_sound());
}

}  // namespace efs::devdax
