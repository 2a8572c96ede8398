// SPDX-License-Identifier: BSD-3-Clause
// Pins the bytes of every record, so that one version of efs reads the records of another.
#include "store/format.hpp"

#include <catch2/catch_test_macros.hpp>
#include <span>
#include <string>
#include <vector>

#include "fs/record.hpp"

namespace efs::store {
namespace {

using namespace fs;

constexpr std::uint32_t pinned_version = 4;  // what the bytes below are the format of

struct Pinned {
  fs::Record record;
  std::string bytes;  // hexadecimal digits, a group for each field
};

// Every field has bytes of its own, so that no two can be exchanged.
constexpr std::uint64_t u64(std::uint8_t first) {
  return first * 0x0101010101010101ULL + 0x0706050403020100ULL;
}

constexpr std::uint32_t u32(std::uint8_t first) {
  return first * 0x01010101U + 0x03020100U;
}

constexpr Nanoseconds i64(std::uint8_t first) {
  return static_cast<Nanoseconds>(u64(first));
}

FileTime file_time(std::uint8_t first) {
  return timespec{.tv_sec = i64(first), .tv_nsec = u32(first + 8)};
}

Origin origin(std::uint8_t first) {
  return {u64(first), u64(first + 8), u64(first + 16), i64(first + 24), i64(first + 32)};
}

ledger::File file(std::uint8_t first, bool linked) {
  return {{u64(first), u64(first + 8), u64(first + 16), i64(first + 24), i64(first + 32)}, linked};
}

std::vector<Pinned> pinned() {
  return {
      {MakeNode{.ino = u64(0x10),
                .parent = u64(0x18),
                .rdev = u64(0x20),
                .mode = u32(0x28),
                .uid = u32(0x2c),
                .gid = u32(0x30),
                .atime = file_time(0x34),
                .mtime = file_time(0x40),
                .ctime = file_time(0x4c),
                .btime = file_time(0x58),
                .dirty = 0x64,
                .staged = 0x65,
                .cookie = u64(0x66),
                .origin = origin(0x6e),
                .name = "name",
                .target = "to",
                .origin_path = "a/n",
                .xattrs = {{"user.b", "v"}, {"user.a", std::string("\0w", 2)}}},
       "00 04 1011121314151617 18191a1b1c1d1e1f 2021222324252627 28292a2b 2c2d2e2f 30313233 "
       "3435363738393a3b 3c3d3e3f 4041424344454647 48494a4b 4c4d4e4f50515253 54555657 "
       "58595a5b5c5d5e5f 60616263 "
       "64 65 666768696a6b6c6d 6e6f707172737475 767778797a7b7c7d 7e7f808182838485 "
       "868788898a8b8c8d 8e8f909192939495 04000000 6e616d65 02000000 746f 03000000 612f6e "
       "02000000 06000000 757365722e61 02000000 0077 06000000 757365722e62 01000000 76"},
      {Link{.ino = u64(0x10),
            .parent = u64(0x18),
            .cookie = u64(0x20),
            .time = file_time(0x28),
            .name = "other"},
       "01 04 1011121314151617 18191a1b1c1d1e1f 2021222324252627 28292a2b2c2d2e2f 30313233 "
       "05000000 6f74686572"},
      {Unlink{.parent = u64(0x10), .time = file_time(0x18), .name = "name"},
       "02 04 1011121314151617 18191a1b1c1d1e1f 20212223 04000000 6e616d65"},
      {Rename{.parent = u64(0x10),
              .new_parent = u64(0x18),
              .flags = u32(0x20),
              .time = file_time(0x24),
              .name = "old",
              .new_name = "new"},
       "03 04 1011121314151617 18191a1b1c1d1e1f 20212223 2425262728292a2b 2c2d2e2f 03000000 "
       "6f6c64 03000000 6e6577"},
      {SetAttributes{.ino = u64(0x10),
                     .mode = u32(0x18),
                     .uid = u32(0x1c),
                     .gid = u32(0x20),
                     .atime = file_time(0x24),
                     .mtime = file_time(0x30),
                     .ctime = file_time(0x3c),
                     .dirty = 0x48,
                     .access_acl = "acl"},
       "04 04 1011121314151617 18191a1b 1c1d1e1f 20212223 2425262728292a2b 2c2d2e2f "
       "3031323334353637 38393a3b 3c3d3e3f40414243 44454647 48 03000000 61636c"},
      {SetXattr{.ino = u64(0x10),
                .time = file_time(0x18),
                .name = "user.a",
                .value = std::string("\0w", 2)},
       "05 04 1011121314151617 18191a1b1c1d1e1f 20212223 06000000 757365722e61 02000000 0077"},
      {RemoveXattr{.ino = u64(0x10), .time = file_time(0x18), .name = "user.a"},
       "06 04 1011121314151617 18191a1b1c1d1e1f 20212223 06000000 757365722e61"},
      {UsedInodes{.next = u64(0x10)}, "07 04 1011121314151617"},
      {NextCookie{.ino = u64(0x10), .next = u64(0x18)}, "08 04 1011121314151617 18191a1b1c1d1e1f"},
      {NewConnection{}, "09 04 00"},
      {Answered{.ino = u64(0x10)}, "0a 04 1011121314151617"},
      {SetStaging{.ino = u64(0x10),
                  .dirty = 0x18,
                  .keep = static_cast<std::uint8_t>(Keep::persistent),
                  .staged = 0x19,
                  .saved = 0x1a,
                  .origin = origin(0x20),
                  .copy = origin(0x48),
                  .origin_path = "a/n",
                  .saved_path = "s/n",
                  .parts = "0+9"},
       "0b 04 1011121314151617 18 02 19 1a 2021222324252627 28292a2b2c2d2e2f 3031323334353637 "
       "38393a3b3c3d3e3f 4041424344454647 48494a4b4c4d4e4f 5051525354555657 58595a5b5c5d5e5f "
       "6061626364656667 68696a6b6c6d6e6f "
       "03000000 612f6e 03000000 732f6e 03000000 302b39"},
      {Replace{.ino = u64(0x10), .parent = u64(0x18), .time = file_time(0x20), .name = "name"},
       "0c 04 1011121314151617 18191a1b1c1d1e1f 2021222324252627 28292a2b 04000000 6e616d65"},
      {Settled{.inodes = "\x10\x11\x12\x13\x14\x15\x16\x17"}, "0d 04 08000000 1011121314151617"},
      {Gone{.mode = u32(0x10),
            .there = Gone::unloaded,
            .keep = static_cast<std::uint8_t>(Keep::temporary),
            .linked = 0x14,
            .saved = 0x15,
            .origin = origin(0x20),
            .copy = origin(0x48),
            .path = "a/n",
            .target = "to"},
       "0e 04 10111213 02 01 14 15 2021222324252627 28292a2b2c2d2e2f 3031323334353637 "
       "38393a3b3c3d3e3f 4041424344454647 48494a4b4c4d4e4f 5051525354555657 58595a5b5c5d5e5f "
       "6061626364656667 68696a6b6c6d6e6f "
       "03000000 612f6e 02000000 746f"},
      {SetContent{
           .ino = u64(0x10),
           .size = u64(0x18),
           .physical = u64(0x20),
           .atime = file_time(0x28),
           .mtime = file_time(0x34),
           .ctime = file_time(0x40),
           .begin = u64(0x4c),
           .end = u64(0x54),
           .extents = {{u64(0x5c), u64(0x64), u64(0x6c)}, {u64(0x74), u64(0x7c), u64(0x84)}}},
       "0f 09 1011121314151617 18191a1b1c1d1e1f 2021222324252627 28292a2b2c2d2e2f 30313233 "
       "3435363738393a3b 3c3d3e3f 4041424344454647 48494a4b 4c4d4e4f50515253 5455565758595a5b "
       "02000000 5c5d5e5f60616263 6465666768696a6b 6c6d6e6f70717273 "
       "7475767778797a7b 7c7d7e7f80818283 8485868788898a8b"},
      {ledger::Announced{.at = ledger::Name{.name = u64(0x10), .own = u64(0x18)},
                         .version = file(0x20, true),
                         .before = file(0x48, false)},
       "10 05 1011121314151617 18191a1b1c1d1e1f 01 2021222324252627 28292a2b2c2d2e2f "
       "3031323334353637 38393a3b3c3d3e3f 4041424344454647 01 01 48494a4b4c4d4e4f "
       "5051525354555657 58595a5b5c5d5e5f 6061626364656667 68696a6b6c6d6e6f 00"},
      {ledger::Exported{.at = ledger::Name{.name = u64(0x10), .own = u64(0x18)},
                        .file = file(0x20, true)},
       "11 05 1011121314151617 18191a1b1c1d1e1f 2021222324252627 28292a2b2c2d2e2f "
       "3031323334353637 38393a3b3c3d3e3f 4041424344454647 01"},
      {ledger::Removed{.at = ledger::Name{.name = u64(0x10), .own = u64(0x18)}},
       "12 05 1011121314151617 18191a1b1c1d1e1f"},
      {ledger::Imported{.name = u64(0x10)}, "13 05 1011121314151617"},
      {ledger::DirectoryGiven{.at = ledger::Name{.name = u64(0x10), .own = u64(0x18)},
                              .state = {.version = u64(0x20),
                                        .interrupted = true,
                                        .was = ledger::DirectoryShape{.mode = u32(0x28),
                                                                      .uid = u32(0x2c),
                                                                      .gid = u32(0x30),
                                                                      .xattrs = u64(0x34)},
                                        .unfinished = false,
                                        .applied = u64(0x3c)}},
       "14 05 1011121314151617 18191a1b1c1d1e1f 01 2021222324252627 01 01 28292a2b 2c2d2e2f "
       "30313233 3435363738393a3b 00 01 3c3d3e3f40414243"},
      {ledger::Missed{.since = i64(0x10)}, "15 05 1011121314151617"},
      {LostWrites{.ino = u64(0x10), .lacks = 0x18}, "16 05 1011121314151617 18"},
      {MakeRemote{MakeNode{.ino = u64(0x10),
                           .parent = u64(0x18),
                           .rdev = u64(0x20),
                           .mode = u32(0x28),
                           .uid = u32(0x2c),
                           .gid = u32(0x30),
                           .atime = file_time(0x34),
                           .mtime = file_time(0x40),
                           .ctime = file_time(0x4c),
                           .btime = file_time(0x58),
                           .dirty = 0x64,
                           .staged = 0x65,
                           .cookie = u64(0x66),
                           .origin = origin(0x6e),
                           .name = "name",
                           .target = "to",
                           .origin_path = "a/n",
                           .xattrs = {{"user.b", "v"}, {"user.a", std::string("\0w", 2)}}},
                  origin(0x10), "s/n", 0x38, static_cast<std::int32_t>(u32(0x39)), 0x3d, u64(0x3e),
                  0x46},
       "17 06 1011121314151617 18191a1b1c1d1e1f 2021222324252627 28292a2b 2c2d2e2f 30313233 "
       "3435363738393a3b 3c3d3e3f 4041424344454647 48494a4b 4c4d4e4f50515253 54555657 "
       "58595a5b5c5d5e5f 60616263 "
       "64 65 666768696a6b6c6d 6e6f707172737475 767778797a7b7c7d 7e7f808182838485 "
       "868788898a8b8c8d 8e8f909192939495 04000000 6e616d65 02000000 746f 03000000 612f6e "
       "02000000 06000000 757365722e61 02000000 0077 06000000 757365722e62 01000000 76 "
       "1011121314151617 18191a1b1c1d1e1f "
       "2021222324252627 28292a2b2c2d2e2f 3031323334353637 03000000 732f6e 38 393a3b3c 3d "
       "3e3f404142434445 46"},
      {Fetched{.ino = u64(0x10)}, "18 06 1011121314151617"},
      {NewVersion{
           .ino = u64(0x10), .version = origin(0x18), .room = u64(0x40), .time = file_time(0x48)},
       "19 07 1011121314151617 18191a1b1c1d1e1f 2021222324252627 28292a2b2c2d2e2f "
       "3031323334353637 38393a3b3c3d3e3f 4041424344454647 48494a4b4c4d4e4f50515253"},
      {Evicted{.ino = u64(0x10),
               .atime = file_time(0x18),
               .mtime = file_time(0x24),
               .ctime = file_time(0x30),
               .version = origin(0x3c),
               .source = "/s/n"},
       "1a 07 1011121314151617 18191a1b1c1d1e1f 20212223 2425262728292a2b 2c2d2e2f "
       "3031323334353637 38393a3b "
       "3c3d3e3f40414243 4445464748494a4b 4c4d4e4f50515253 5455565758595a5b 5c5d5e5f60616263 "
       "04000000 2f732f6e"},
      {Moved{.ino = u64(0x10),
             .container = u64(0x18),
             .shown = file_time(0x20),
             .ctime = file_time(0x2c),
             .mtime = file_time(0x38)},
       "1b 08 1011121314151617 18191a1b1c1d1e1f 2021222324252627 28292a2b 2c2d2e2f30313233 "
       "34353637 "
       "38393a3b3c3d3e3f 40414243"},
      {fs::Pinned{.ino = u64(0x10), .pinned = 0x18}, "1c 04 1011121314151617 18"}};
}

std::vector<std::byte> bytes_of(const fs::Record& record) {
  std::vector<std::byte> bytes;
  encode(record, bytes);
  return bytes;
}

std::string digits_of(std::span<const std::byte> bytes) {
  std::string digits;
  for (const auto byte : bytes) {
    for (const unsigned shift : {4U, 0U}) {
      digits += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> shift & 15U];
    }
  }
  return digits;
}

TEST_CASE("the bytes of every record are those of the journal's version") {
  INFO(
      "A changed format needs a new journal_version in src/store/format.hpp, or a journal of "
      "before would be read as something else; then its bytes are pinned here.");
  REQUIRE(journal_version == pinned_version);
  const auto all = pinned();
  REQUIRE(all.size() == std::variant_size_v<fs::Record>);
  for (std::size_t type = 0; type < all.size(); ++type) {
    std::string expected = all[type].bytes;
    std::erase(expected, ' ');
    const auto bytes = bytes_of(all[type].record);
    CHECK(all[type].record.index() == type);
    CHECK(digits_of(bytes) == expected);
    const auto read = decode(bytes, journal_version, fs::content_level);
    REQUIRE(read);
    CHECK(digits_of(bytes_of(read->value())) == expected);
  }
}

}  // namespace
}  // namespace efs::store
