// SPDX-License-Identifier: BSD-3-Clause
#include "fs/record.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace efs::fs;

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
      Gone{0100000, 1, 2, 1, 1, {1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}, "a/name", "target"}};
}

std::vector<std::byte> bytes_of(const Record& record) {
  std::vector<std::byte> bytes;
  encode(record, bytes);
  return bytes;
}

}  // namespace

TEST_CASE("every record survives encoding, and there is an example of every type") {
  const auto all = examples();
  REQUIRE(all.size() == std::variant_size_v<Record>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    REQUIRE(all[i].index() == i);
    const auto bytes = bytes_of(all[i]);
    const auto back = decode(bytes);
    REQUIRE(back);
    CHECK(bytes_of(*back) == bytes);
  }
}

TEST_CASE("a record that is cut, too long or of unknown type is refused") {
  for (const auto& record : examples()) {
    auto bytes = bytes_of(record);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      CHECK_FALSE(decode(std::span(bytes).first(length)));
    }
    bytes.push_back(std::byte{0});
    CHECK_FALSE(decode(bytes));
  }
  CHECK_FALSE(decode(std::vector{std::byte{200}}));
}
