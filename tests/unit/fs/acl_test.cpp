// SPDX-License-Identifier: BSD-3-Clause
#include "fs/acl.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <random>

#include "support/temp.hpp"

using efs::fs::Acl;

namespace {

struct Entry {
  std::uint16_t tag, permissions;
  std::uint32_t id = 0xffffffff;
};

std::string bytes_of(std::initializer_list<Entry> entries, std::uint32_t version = 2) {
  std::string value(reinterpret_cast<const char*>(&version), 4);
  for (const Entry& entry : entries) {
    value.append(reinterpret_cast<const char*>(&entry), 8);
  }
  return value;
}

constexpr std::uint16_t owner = 1, user = 2, owning_group = 4, group = 8, mask = 16, other = 32;

}  // namespace

TEST_CASE("an ACL survives parsing and formatting") {
  const auto value = bytes_of({{owner, 6},
                               {user, 7, 1000},
                               {user, 0, 1001},
                               {owning_group, 4},
                               {group, 1, 5},
                               {mask, 7},
                               {other, 4}});
  const auto acl = Acl::parse(value);
  REQUIRE(acl);
  CHECK(acl->format() == value);
  CHECK_FALSE(acl->is_minimal());
  CHECK(acl->mode_of(S_IFREG | 04000) == (S_IFREG | 04674));
}

TEST_CASE("an incomplete or disordered ACL is refused") {
  CHECK(Acl::parse("").error().code == EINVAL);
  CHECK(Acl::parse("abc").error().code == EINVAL);
  CHECK(Acl::parse(bytes_of({})).error().code == EINVAL);
  CHECK(Acl::parse(bytes_of({{owner, 7}, {owning_group, 5}, {other, 5}}, 3)).error().code ==
        EOPNOTSUPP);
  CHECK(Acl::parse(bytes_of({{owner, 7}, {owning_group, 5}, {other, 5}})));
  for (const auto& bad :
       {bytes_of({{owner, 7}, {owning_group, 5}}),
        bytes_of({{owner, 7}, {other, 5}, {owning_group, 5}}),
        bytes_of({{owner, 8}, {owning_group, 5}, {other, 5}}),
        bytes_of({{owner, 7}, {user, 5, 1}, {owning_group, 5}, {other, 5}}),
        bytes_of({{owner, 7}, {user, 5}, {owning_group, 5}, {mask, 7}, {other, 5}}),
        bytes_of({{owner, 7}, {owner, 7}, {owning_group, 5}, {other, 5}}),
        bytes_of({{owner, 7}, {owning_group, 5}, {other, 5}, {64, 1}})}) {
    CHECK(Acl::parse(bad).error().code == EINVAL);
  }
  CHECK_FALSE(Acl::parse(bytes_of({{owner, 7}, {owning_group, 5}, {other, 5}}) + "x"));
}

TEST_CASE("chmod moves the mask, or the group where there is none") {
  auto with_mask = *Acl::parse(
      bytes_of({{owner, 6}, {user, 7, 1000}, {owning_group, 4}, {mask, 7}, {other, 4}}));
  with_mask.follow(0751);
  CHECK(with_mask.format() ==
        bytes_of({{owner, 7}, {user, 7, 1000}, {owning_group, 4}, {mask, 5}, {other, 1}}));
  auto without = *Acl::parse(bytes_of({{owner, 6}, {owning_group, 4}, {other, 4}}));
  without.follow(0751);
  CHECK(without.format() == bytes_of({{owner, 7}, {owning_group, 5}, {other, 1}}));
  CHECK(without.is_minimal());
}

TEST_CASE("a default ACL gives a new file no right that it did not ask for") {
  auto acl = *Acl::parse(
      bytes_of({{owner, 7}, {user, 7, 1000}, {owning_group, 7}, {mask, 7}, {other, 5}}));
  acl.restrict(0640);
  CHECK(acl.format() ==
        bytes_of({{owner, 6}, {user, 7, 1000}, {owning_group, 7}, {mask, 4}, {other, 0}}));
  CHECK(acl.mode_of(S_IFREG | 0777) == (S_IFREG | 0640));
}

TEST_CASE("any bytes are parsed or refused, and what is parsed formats to itself") {
  const auto seed = efs::test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::uint16_t tags[] = {owner, user, owning_group, group, mask, other};
  std::size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string value = bytes_of({});
    for (const auto tag : tags) {
      for (auto n = random() % 3; n > 0; --n) {
        const Entry entry{
            tag, static_cast<std::uint16_t>(random() % 8),
            tag == user || tag == group ? static_cast<std::uint32_t>(random() % 5) : 0xffffffffU};
        value.append(reinterpret_cast<const char*>(&entry), 8);
      }
    }
    if (random() % 4 == 0) {
      value[random() % value.size()] ^= static_cast<char>(1U << random() % 8);
    }
    if (const auto acl = Acl::parse(value)) {
      ++accepted;
      CHECK(acl->format().size() == value.size());
      CHECK(Acl::parse(acl->format()));
      CHECK((acl->mode_of(0) & ~static_cast<mode_t>(0777)) == 0);
    }
  }
  CHECK(accepted > 0);
}
