// SPDX-License-Identifier: BSD-3-Clause
// The daemon's own I/O on mapped segments, with a container in plain memory that records its
// mappings.

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <vector>

#include "fs/mapped_file.hpp"

using namespace efs;
using efs::fs::MappedFile;
using efs::fs::Range;

namespace {

class MemorySegment final : public Segment {
 public:
  MemorySegment(std::byte* begin, std::size_t length) : begin_(begin), length_(length) {}

  std::span<std::byte> bytes() override { return {begin_, length_}; }

  void store(std::size_t offset, std::span<const std::byte> data) override {
    REQUIRE(offset + data.size() <= length_);
    std::memcpy(begin_ + offset, data.data(), data.size());
  }

 private:
  std::byte* begin_;
  std::size_t length_;
};

class MemoryContainer final : public Container {
 public:
  explicit MemoryContainer(std::size_t size) : memory(size) {}

  Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) override {
    std::memcpy(into.data(), memory.data() + offset, into.size());
    return into.size();
  }

  Result<std::size_t> write(std::span<const std::byte>, std::uint64_t) override {
    return fail(EIO, "not through a segment");
  }

  Status truncate(std::uint64_t) override { return {}; }

  Status allocate(int, std::uint64_t, std::uint64_t) override { return {}; }

  Result<std::uint64_t> seek(std::uint64_t, int) override { return fail(ENXIO); }

  Result<struct stat> attributes() override { return fail(EIO); }

  void accessed(AccessTimes) override {}

  Status set_times(std::optional<FileTime>, std::optional<FileTime>) override { return {}; }

  Status sync(bool) override { return {}; }

  Result<std::unique_ptr<Segment>> map(std::uint64_t offset, std::size_t length) override {
    mapped.push_back({offset, offset + length});
    return std::make_unique<MemorySegment>(memory.data() + offset, length);
  }

  void will_need(std::uint64_t, std::uint64_t) override {}

  Status clone(const Container&) override { return fail(EOPNOTSUPP); }

  std::optional<int> descriptor() const override { return std::nullopt; }

  std::vector<std::byte> memory;
  std::vector<Range> mapped;
};

constexpr std::uint64_t kib = 1024, mib = 1024 * kib;

}  // namespace

TEST_CASE("segments are no larger than the segment size, and what is written is there",
          "[fs][mapped]") {
  for (const std::uint64_t segment_size :
       {64 * kib, 68 * kib, 2 * mib, 6 * mib, 16 * mib, 128 * mib}) {
    auto container = std::make_shared<MemoryContainer>(160 * mib);
    MappedFile file(container, segment_size);
    std::vector<std::byte> block(200 * kib);
    for (std::uint64_t at = 4 * kib; at + block.size() <= 96 * mib; at += 3 * mib + 4 * kib) {
      std::memset(block.data(), static_cast<int>(at / (4 * kib) % 251 + 1), block.size());
      REQUIRE(file.write(block, at) == block.size());
      REQUIRE(std::memcmp(container->memory.data() + at, block.data(), block.size()) == 0);
    }
    INFO("segment size " << segment_size);
    std::uint64_t largest = 0;
    for (const Range& range : container->mapped) {
      CHECK(range.begin % 4096 == 0);
      largest = std::max(largest, range.length());
    }
    CHECK(largest <= segment_size);
    // Far into the file they have grown as far as they may, or as the file's size is worth.
    CHECK(largest >= std::min(segment_size, 16 * mib));
    CHECK(container->mapped.front().length() <= 2 * mib);
  }
}

TEST_CASE("a segment is mapped once", "[fs][mapped]") {
  auto container = std::make_shared<MemoryContainer>(16 * mib);
  MappedFile file(container, 1 * mib);
  const std::vector<std::byte> block(4 * kib, std::byte{7});
  for (std::uint64_t at = 0; at < 4 * mib; at += block.size()) {
    REQUIRE(file.write(block, at) == block.size());
  }
  CHECK(container->mapped.size() == 4);
}
