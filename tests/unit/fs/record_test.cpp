// SPDX-License-Identifier: BSD-3-Clause
#include "fs/record.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>

#include "fs/record_fields.hpp"

using namespace efs::fs;
namespace ledger = efs::ledger;

namespace {

std::vector<Record> examples() {
  MakeNode node;
  node.ino = 7;
  node.parent = 1;
  node.mode = 0100644;
  node.staged = 1;
  node.origin = {1, 2, 3, 4, 5};
  node.name = "name";
  node.origin_path = "a/name";
  node.mtime = timespec{.tv_sec = -62135596800, .tv_nsec = 5};
  node.xattrs = {{"system.posix_acl_access", std::string("v\0w", 3)}, {"user.empty", ""}};
  return {
      node,
      Link{7, 1, 5, 9, "other"},
      Unlink{1, 9, "name"},
      Rename{1, 2, 0, 9, "a", "b"},
      SetAttributes{7, 0100600, 1, 2, 3, 4, 5, 1, "acl"},
      SetXattr{7, 9, "user.a", std::string("v\0w", 3)},
      RemoveXattr{7, 9, "user.a"},
      UsedInodes{8},
      NextCookie{1, 9},
      NewConnection{},
      Answered{7},
      SetStaging{7, 1, 2, 1, 1, {1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}, "a/name", "b/name", "0+4096"},
      Replace{7, 1, 9, "name"},
      Settled{std::string(16, 'x')},
      Gone{0100000, 1, 2, 1, 1, {1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}, "a/name", "target"},
      SetContent{7, 10, 20, 1, 2, 3, 4, 50, {{4, 100, 6}, {20, 300, 8}}},
      ledger::Announced{
          {1, 2}, ledger::File{{1, 2, 3, 4, 5}, true}, ledger::File{{6, 7, 8, 9, 10}}},
      ledger::Exported{{1, 2}, {{1, 2, 3, 4, 5}, true}},
      ledger::Removed{{1, 2}},
      ledger::Imported{1},
      ledger::DirectoryGiven{{1, 2}, {17, true, ledger::DirectoryShape{0750, 1, 2, 3}, true, 18}},
      ledger::Missed{50},
      LostWrites{7, 1},
      MakeRemote{node, {6, 7, 8, 9, 10}, "b/name", 1, -3, 1, 11, 1},
      Fetched{7},
      NewVersion{7, {6, 7, 8, 9, 10}, 11, efs::FileTime{12}},
      Evicted{7, 1, 2, 3, {6, 7, 8, 9, 10}, "/pfs/name"},
      Moved{7, 8, 1, 2, 3},
      Pinned{7, 1}};
}

std::vector<std::byte> bytes_of(const Record& record) {
  std::vector<std::byte> bytes;
  encode(record, bytes);
  return bytes;
}

bool is_of_level_5(const Record& record) {
  return std::holds_alternative<ledger::Announced>(record) ||
         std::holds_alternative<ledger::Exported>(record) ||
         std::holds_alternative<ledger::Removed>(record) ||
         std::holds_alternative<ledger::Imported>(record) ||
         std::holds_alternative<ledger::DirectoryGiven>(record) ||
         std::holds_alternative<ledger::Missed>(record) ||
         std::holds_alternative<LostWrites>(record);
}

bool is_of_level_6(const Record& record) {
  return std::holds_alternative<MakeRemote>(record) || std::holds_alternative<Fetched>(record);
}

bool is_of_level_7(const Record& record) {
  return std::holds_alternative<NewVersion>(record) || std::holds_alternative<Evicted>(record);
}

int level_of(const Record& record) {
  const bool is_content = std::holds_alternative<SetContent>(record);
  return is_content                              ? 9
         : std::holds_alternative<Moved>(record) ? 8
         : is_of_level_7(record)                 ? 7
         : is_of_level_6(record)                 ? 6
         : is_of_level_5(record)                 ? 5
                                                 : 4;
}

// As a reader that has the level of every record.
auto decode_all(std::span<const std::byte> bytes) {
  return decode(bytes, efs::store::journal_version, content_level);
}

}  // namespace

TEST_CASE("every record survives encoding, and there is an example of every type") {
  const auto all = examples();
  REQUIRE(all.size() == std::variant_size_v<Record>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    REQUIRE(all[i].index() == i);
    const auto bytes = bytes_of(all[i]);
    const auto back = decode_all(bytes);
    REQUIRE(back);
    CHECK(bytes_of(back->value()) == bytes);
  }
}

TEST_CASE("a record that is shorter than the fields of its level is refused") {
  for (const auto& record : examples()) {
    const auto bytes = bytes_of(record);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const auto cut = decode_all(std::span(bytes).first(length));
      REQUIRE_FALSE(cut);
      CHECK(cut.error().code == EPROTO);
    }
  }
}

TEST_CASE("a reader skips the fields and the types of a later level, unless it needs them") {
  for (const auto& record : examples()) {
    INFO(record.index());
    const auto bytes = bytes_of(record);
    auto longer = bytes;
    longer.insert(longer.end(), 9, std::byte{1});
    const auto read = decode_all(longer);
    REQUIRE(read);
    CHECK(bytes_of(read->value()) == bytes);
    longer[1] = std::byte{record_level + 1};
    const auto refused = decode(longer);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == EPROTONOSUPPORT);
    CHECK(refused.error().what ==
          "a record of type " + std::to_string(record.index()) +
              " needs level 9 of the format, and this efs has level 8. Nothing was removed. Open "
              "the store with the efs that wrote it, or a newer one");
    longer[1] = std::byte{first_level - 1};
    CHECK(decode(longer).error().code == EPROTO);
  }
  for (const unsigned type : {static_cast<unsigned>(std::variant_size_v<Record>), 255U}) {
    const auto skipped = decode(std::vector{std::byte(type), std::byte{record_level}});
    REQUIRE(skipped);
    CHECK_FALSE(*skipped);
    CHECK(decode(std::vector{std::byte(type), std::byte{record_level + 1}}).error().code ==
          EPROTONOSUPPORT);
    CHECK(decode(std::vector{std::byte(type), std::byte{0}}).error().code == EPROTO);
  }
}

TEST_CASE("a record states its level; that of a content is the next one: this efs refuses it") {
  for (const auto& record : examples()) {
    INFO(record.index());
    const auto bytes = bytes_of(record);
    const bool is_content = std::holds_alternative<SetContent>(record);
    CHECK(std::to_integer<int>(bytes[1]) == level_of(record));
    const auto read = decode(bytes);
    CHECK(read.has_value() == !is_content);
    CHECK((read || read.error().code == EPROTONOSUPPORT));
  }
}

TEST_CASE("an efs of before remote files refuses a journal with one") {
  for (const auto& record : examples()) {
    const auto read = decode(bytes_of(record), efs::store::journal_version, 5);
    CHECK(read.has_value() == (level_of(record) <= 5));
    CHECK((read || read.error().code == EPROTONOSUPPORT));
  }
}

TEST_CASE("a record that states a level at which its type did not exist is refused") {
  for (const auto& record : examples()) {
    INFO(record.index());
    auto bytes = bytes_of(record);
    const auto needs = std::to_integer<unsigned>(bytes[1]);
    for (unsigned level = 0; level < needs; ++level) {
      bytes[1] = static_cast<std::byte>(level);
      const auto read = decode_all(bytes);
      REQUIRE_FALSE(read);
      CHECK(read.error().code == EPROTO);
      CHECK(read.error().what.contains("has level " + std::to_string(level)));
    }
    bytes[1] = static_cast<std::byte>(content_level);  // a later level, with news to its fields
    CHECK(decode_all(bytes));
  }
}

TEST_CASE("a record of version 3 has no level, and its exact length") {
  for (const auto& record : examples()) {
    INFO(record.index());
    auto bytes = bytes_of(record);
    bytes.erase(bytes.begin() + 1);
    const auto read = decode(bytes, 3);
    if (level_of(record) > 4 || std::holds_alternative<Pinned>(record)) {
      CHECK(read.error().code == EPROTO);
      continue;
    }
    REQUIRE(read);
    CHECK(bytes_of(read->value()) == bytes_of(record));
    bytes.push_back(std::byte{0});
    CHECK(decode(bytes, 3).error().code == EPROTO);
    for (std::size_t length = 0; length + 1 < bytes.size(); ++length) {
      CHECK(decode(std::span(bytes).first(length), 3).error().code == EPROTO);
    }
  }
  CHECK(decode(std::vector{std::byte{200}}, 3).error().code == EPROTO);
}

namespace {

// A record that got fields at two later levels.
struct Grown {
  std::uint32_t first = 0;
  std::uint64_t second = 2;
  std::string third = "default";

  template <typename F>
  void fields(F&& f) {
    f(first);
    f.since(5, second);
    f.since(6, third);
  }
};

struct ReadBack {
  Grown record;
  bool ok = false, at_end = false;
};

ReadBack read_grown(std::span<const std::byte> bytes, std::uint8_t level) {
  FieldReader reader(bytes, level);
  ReadBack back;
  back.record.fields(reader);
  back.ok = reader.ok();
  back.at_end = reader.at_end();
  return back;
}

}  // namespace

TEST_CASE("fields of later levels may be missing from the end, and those of its level may not") {
  std::vector<std::byte> bytes;
  Grown written{.first = 10, .second = 20, .third = "30"};
  written.fields(FieldWriter(bytes));
  REQUIRE(bytes.size() == 4 + 8 + 4 + 2);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    INFO(length);
    const auto cut = std::span(bytes).first(length);
    const auto old = read_grown(cut, 4);
    CHECK(old.ok == (length == 4 || length == 12 || length == bytes.size()));
    CHECK(read_grown(cut, 5).ok == (length == 12 || length == bytes.size()));
    CHECK(read_grown(cut, 6).ok == (length == bytes.size()));
    if (old.ok) {
      CHECK(old.record.first == 10);
      CHECK(old.record.second == (length > 4 ? 20 : 2));
      CHECK(old.record.third == (length > 12 ? "30" : "default"));
      CHECK(old.at_end);
    }
  }
  bytes.push_back(std::byte{0});
  const auto longer = read_grown(bytes, 6);
  CHECK(longer.ok);
  CHECK_FALSE(longer.at_end);
}
