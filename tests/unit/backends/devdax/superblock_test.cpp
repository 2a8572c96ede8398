// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/superblock.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <string_view>
#include <vector>

namespace efs::devdax {
namespace {

using namespace std::string_view_literals;

constexpr uid_t owner = 1000, other = 1001;
constexpr std::uint64_t device_bytes = 4U << 20U, block = 32U << 10U;

/// Memory that stops to take stores after a number of 8-byte words, as a machine that loses power.
class FakeMemory final : public DeviceMemory {
 public:
  std::span<std::byte> bytes() override { return memory; }

  void store(std::byte* to, std::span<const std::byte> from) override {
    const auto kept = std::min<std::uint64_t>(from.size(), words_left * 8);
    std::memcpy(to, from.data(), kept);
    words_left -= (kept + 7) / 8;
    words += (from.size() + 7) / 8;
  }

  void flush(std::span<const std::byte>) override {}

  void drain() override {}

  Status sync() override { return {}; }

  std::vector<std::byte> memory = std::vector<std::byte>(device_bytes);
  std::uint64_t words_left = UINT64_MAX / 8, words = 0;
};

FormatOptions options_of(uid_t uid) {
  return {.owner = uid, .block = block, .metadata = 256U << 10U, .align = 4096};
}

Superblock formatted(FakeMemory& device, uid_t uid) {
  const auto made = format(device, read_superblock(device, uid), options_of(uid));
  REQUIRE(made);
  return *made;
}

void put(FakeMemory& device, std::uint64_t at, std::string_view text) {
  std::memcpy(device.memory.data() + at, text.data(), text.size());
}

}  // namespace

TEST_CASE("a formatted device is its owner's", "[devdax]") {
  FakeMemory device;
  CHECK(read_superblock(device, owner).content == Content::empty);
  const auto made = formatted(device, owner);
  CHECK(made.owner == owner);
  CHECK(made.zero_before_use);  // nothing tells whose bytes are behind the first ones
  CHECK(made.metadata.offset == metadata_begin);
  CHECK(made.metadata.length >= 256U << 10U);
  CHECK(made.metadata.end() == made.data.offset);
  CHECK(made.data.is_sound());
  CHECK(made.data.offset + made.data.bytes() == device_bytes);
  CHECK(std::ranges::any_of(made.uuid, [](auto byte) { return byte != 0; }));
  const auto own = read_superblock(device, owner), foreign = read_superblock(device, other);
  CHECK(own.content == Content::own);
  CHECK(own.superblock == made);
  CHECK_FALSE(own.unfinished);
  CHECK(foreign.content == Content::another_users);
  CHECK(foreign.superblock == made);
  CHECK(foreign.text == "a store of user 1000");
}

TEST_CASE("only an empty device is formatted without --format", "[devdax]") {
  FakeMemory device;
  CHECK(may_format(read_superblock(device, owner), "/dev/dax0.0", false));
  formatted(device, owner);
  const auto refusal = [&](uid_t uid) {
    const auto found = read_superblock(device, uid);
    CHECK(may_format(found, "/dev/dax0.0", true));
    const auto status = may_format(found, "/dev/dax0.0", false);
    REQUIRE_FALSE(status);
    CHECK(status.error().what.find("/dev/dax0.0") != std::string::npos);
    CHECK(status.error().what.find("--format") != std::string::npos);
    return status.error();
  };
  CHECK(refusal(owner).code == EEXIST);
  CHECK(refusal(other).code == EACCES);
  CHECK(refusal(other).what.find("user 1000") != std::string::npos);
  device.memory[20] ^= std::byte{1};
  CHECK(read_superblock(device, owner).content == Content::own);  // the second copy
  device.memory[superblock_at[1] + 20] ^= std::byte{1};
  CHECK(read_superblock(device, owner).content == Content::damaged);
  CHECK(refusal(owner).code == EUCLEAN);
  CHECK(refusal(owner).what.find("damaged") != std::string::npos);
  device.memory[8] = std::byte{9};
  CHECK(read_superblock(device, owner).content == Content::another_version);
  CHECK(refusal(owner).what.find("version 9") != std::string::npos);
}

TEST_CASE("foreign content is recognised", "[devdax]") {
  struct Case {
    std::uint64_t at;
    std::string_view bytes, name;
  };

  const auto one = GENERATE(Case{0, "XFSB"sv, "XFS"}, Case{0x438, "\x53\xef"sv, "ext4"},
                            Case{0x10040, "_BHRfS_M"sv, "Btrfs"}, Case{0, "LUKS\xba\xbe"sv, "LUKS"},
                            Case{0, "PMEMPOOL"sv, "PMDK"}, Case{0x200, "EFI PART"sv, "GPT"},
                            Case{0x1fe, "\x55\xaa"sv, "MBR"}, Case{0, "PMEMOBJ\0"sv, "libpmemobj"},
                            Case{12345, "x"sv, "bytes that are not zero"},
                            Case{(1U << 20U) - 1, "x"sv, "bytes that are not zero"});
  FakeMemory device;
  put(device, one.at, one.bytes);
  const auto found = read_superblock(device, owner);
  CHECK(found.content == Content::foreign);
  CHECK(found.text.find(one.name) != std::string::npos);
  const auto refused = may_format(found, "/dev/dax1.0", false);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == EUCLEAN);
  CHECK(formatted(device, owner).zero_before_use);
  CHECK(read_superblock(device, owner).content == Content::own);
}

TEST_CASE("bytes of other users are marked until a store is all its owner's", "[devdax]") {
  FakeMemory device;
  formatted(device, owner);
  CHECK(formatted(device, owner).zero_before_use);
  // A store without the mark keeps to be without when its owner formats it again.
  auto own = read_superblock(device, owner);
  own.superblock->zero_before_use = false;
  auto made = finish_format(device, *own.superblock);
  REQUIRE(made);
  CHECK_FALSE(formatted(device, owner).zero_before_use);
  CHECK(formatted(device, other).zero_before_use);
  CHECK(formatted(device, other).zero_before_use);
}

TEST_CASE("a format that is cut short leaves the former superblock or the new one", "[devdax]") {
  FakeMemory before;
  const auto old = formatted(before, owner);
  std::memset(before.memory.data() + old.metadata.offset, 7, old.metadata.length);
  FakeMemory whole = before;
  whole.words = 0;
  formatted(whole, other);
  const auto all_words = whole.words;
  bool was_old = false, was_unfinished = false, was_new = false;
  // every word of the superblocks, and some of the metadata
  for (std::uint64_t kept = 0; kept <= all_words;
       kept += kept < 40 || kept + 440 > all_words ? 1 : 397) {
    INFO("power fails after " << kept << " words");
    FakeMemory device = before;
    device.words_left = kept;
    (void)format(device, read_superblock(device, other), options_of(other));
    device.words_left = UINT64_MAX / 8;
    const auto found = read_superblock(device, other);
    REQUIRE(found.superblock);
    if (found.content == Content::another_users) {
      was_old = true;
      REQUIRE(found.superblock == old);
      REQUIRE(std::memcmp(device.memory.data() + old.metadata.offset,
                          before.memory.data() + old.metadata.offset, old.metadata.length) == 0);
      continue;
    }
    REQUIRE(found.content == Content::own);
    auto current = *found.superblock;
    if (found.unfinished) {
      was_unfinished = true;
      const auto finished = finish_format(device, current);
      REQUIRE(finished);
      current = *finished;
      REQUIRE(read_superblock(device, other).superblock == current);
      REQUIRE_FALSE(read_superblock(device, other).unfinished);
    } else {
      was_new = true;
    }
    const std::vector<std::byte> zeros(current.metadata.length);
    REQUIRE(std::memcmp(device.memory.data() + current.metadata.offset, zeros.data(),
                        zeros.size()) == 0);
  }
  CHECK(was_old);
  CHECK(was_unfinished);
  CHECK(was_new);
}

TEST_CASE("a second format that is cut short does not bring back the one before", "[devdax]") {
  constexpr std::uint64_t copy_words = 112 / 8;
  FakeMemory device;
  formatted(device, owner);
  device.words_left = copy_words;  // one of the copies
  (void)format(device, read_superblock(device, other), options_of(other));
  const auto first = read_superblock(device, other);
  REQUIRE(first.content == Content::own);
  for (std::uint64_t kept = 0; kept < copy_words; ++kept) {
    INFO("power fails after " << kept << " words");
    FakeMemory again = device;
    again.words_left = kept;
    (void)format(again, first, options_of(other));
    const auto found = read_superblock(again, other);
    CHECK(found.superblock == first.superblock);
    CHECK(found.unfinished);
  }
}

TEST_CASE("a format that power loss ends twice never leaves the former superblock", "[devdax]") {
  constexpr std::uint64_t words_of_a_copy = 14;
  // The new superblock is the first copy alone, or the second.
  const auto damaged = GENERATE(superblock_at[0], superblock_at[1]);
  for (const bool is_empty : {false, true}) {
    FakeMemory before;
    if (!is_empty) {
      formatted(before, owner);
      put(before, damaged, "damage");
    }
    before.words_left = words_of_a_copy;
    (void)format(before, read_superblock(before, other), options_of(other));
    before.words_left = UINT64_MAX / 8;
    const auto begun = read_superblock(before, other);
    REQUIRE(begun.content == Content::own);
    REQUIRE(begun.unfinished);
    const auto words_before = begun.superblock->metadata.length / 8;
    for (std::uint64_t kept = 0; kept <= 2 * words_of_a_copy; ++kept) {
      INFO("empty: " << is_empty << ", damaged at " << damaged << ", power fails again " << kept
                     << " words after the metadata");
      FakeMemory device = before;
      device.words_left = words_before + kept;
      (void)finish_format(device, *begun.superblock);
      const auto found = read_superblock(device, other);
      REQUIRE(found.content == Content::own);
      REQUIRE(found.superblock->uuid == begun.superblock->uuid);
    }
  }
}

TEST_CASE("a superblock that contradicts the device is damaged", "[devdax]") {
  FakeMemory device;
  formatted(device, owner);
  device.memory.resize(device_bytes / 2);
  const auto found = read_superblock(device, owner);
  CHECK(found.content == Content::damaged);
  CHECK(found.text.find(std::to_string(device_bytes)) != std::string::npos);
}

TEST_CASE("a block size that does not fit is refused, and nothing is written", "[devdax]") {
  FakeMemory device;
  auto options = options_of(owner);
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{100'000}, std::uint64_t{4096}, std::uint64_t{2} << 30U}) {
    options.block = wrong;
    CHECK(format(device, {}, options).error().code == EINVAL);
  }
  options.block = 4U << 20U;
  CHECK(format(device, {}, options).error().code == ENOSPC);
  CHECK(device.words == 0);
}

}  // namespace efs::devdax
