// SPDX-License-Identifier: BSD-3-Clause
// Which contents move between tiers.
#include "daemon/tier_policy.hpp"

#include <catch2/catch_test_macros.hpp>

namespace efs::daemon {
namespace {

/// A tier of 1000 bytes.
Tier tier(std::uint64_t used, std::vector<MoveCandidate> files = {}) {
  return {.space = {.capacity = 1000, .used = used, .available = 1000 - used},
          .files = std::move(files)};
}

MoveCandidate file(const char* path, std::uint64_t bytes, std::int64_t since,
                   bool was_used = false) {
  return {.ino = static_cast<std::uint64_t>(path[0]),
          .path = path,
          .bytes = bytes,
          .since = FileTime(since * 1'000'000'000),
          .was_used = was_used};
}

config::Tiers rules() {
  return {.order = {0, 1, 2}, .high = 90, .low = 75};
}

/// "a>1 b>2": the files and the tiers to which they go.
std::string text_of(const std::vector<TierMove>& moves) {
  std::string text;
  for (const auto& move : moves) {
    text += (text.empty() ? "" : " ") + move.path + ">" + std::to_string(move.to);
  }
  return text;
}

std::string down(const std::vector<Tier>& tiers) {
  return text_of(moves_down(rules(), tiers));
}

std::string up(const std::vector<Tier>& tiers) {
  return text_of(moves_up(rules(), tiers));
}

}  // namespace

TEST_CASE("a tier keeps its contents until more than high is in use", "[tiers]") {
  CHECK(down({}) == "");
  CHECK(down({tier(900, {file("a", 500, 1)}), tier(0)}) == "");
  CHECK(down({tier(901, {file("a", 500, 1)}), tier(0)}) == "a>1");
  CHECK(down({tier(0), tier(1000, {file("a", 500, 1)})}) == "");
}

TEST_CASE("the contents that were used longest ago go first, until low", "[tiers]") {
  const std::vector files{file("a", 100, 3), file("b", 100, 1), file("c", 100, 2),
                          file("d", 100, 0, true)};
  CHECK(down({tier(950, files), tier(0)}) == "b>1 c>1");
  CHECK(down({tier(951, files), tier(0)}) == "b>1 c>1 a>1");
  CHECK(down({tier(1000, {file("d", 100, 0, true), file("e", 100, 9)}), tier(0)}) == "e>1 d>1");
  CHECK(down({tier(1000, {file("e", 0, 0), file("f", 500, 1)}), tier(0)}) == "f>1");
}

TEST_CASE("a content goes to the next lower tier that takes it", "[tiers]") {
  const std::vector files{file("a", 300, 1)};
  CHECK(down({tier(1000, files), tier(600), tier(0)}) == "a>1");
  CHECK(down({tier(1000, files), tier(601), tier(0)}) == "a>2");
  CHECK(down({tier(1000, files), tier(700), tier(700)}) == "a>2");
  CHECK(down({tier(1000, files), tier(700), tier(701)}) == "");
  // a smaller one goes in its place
  CHECK(down({tier(1000, {file("a", 300, 1), file("b", 200, 2)}), tier(700), tier(701)}) == "b>1");
}

TEST_CASE("lower tiers make room first", "[tiers]") {
  const auto moves = moves_down(rules(), std::vector{tier(1000, {file("a", 300, 5)}),
                                                     tier(950, {file("b", 400, 1)}), tier(0)});
  CHECK(text_of(moves) == "b>2 a>1");
  CHECK((moves.at(0).from == 1 && moves.at(0).bytes == 400 && moves.at(0).ino == 'b'));
}

TEST_CASE("a tier gives what would fill it above high with what comes", "[tiers]") {
  // without that, the newer contents would pass the older ones of the tier between
  const std::vector tiers{tier(950, {file("a", 200, 5)}),
                          tier(800, {file("b", 200, 1), file("c", 300, 2), file("d", 300, 3)}),
                          tier(0)};
  CHECK(bytes_down(rules(), tiers) == std::vector<std::uint64_t>{200, 250, 0});
  CHECK(down(tiers) == "b>2 c>2 a>1");
  CHECK(bytes_down(rules(), std::vector{tier(950), tier(700), tier(0)}) ==
        std::vector<std::uint64_t>{200, 0, 0});
  CHECK(bytes_down(rules(), std::vector{tier(900), tier(900), tier(1000)}) ==
        std::vector<std::uint64_t>{0, 0, 0});
  CHECK(bytes_down(rules(), {}).empty());
}

TEST_CASE("files that were opened go up while low is kept", "[tiers]") {
  const std::vector files{file("a", 300, 1, true), file("b", 300, 2, true), file("c", 300, 3),
                          file("d", 300, 4, true)};
  CHECK(up({tier(0), tier(900, files)}) == "d>0 b>0");
  CHECK(up({tier(450), tier(900, files)}) == "d>0");
  CHECK(up({tier(451), tier(900, files)}) == "");
  CHECK(up({tier(0, files), tier(0)}) == "");
  CHECK(up({tier(0), tier(0), tier(300, {file("a", 300, 1, true)})}) == "a>0");
  CHECK(up({}) == "");
}

TEST_CASE("levels are shares of any capacity", "[tiers]") {
  const Space large{.capacity = UINT64_MAX, .used = 0, .available = UINT64_MAX};
  CHECK(level_of(large, 100) == UINT64_MAX);
  CHECK(level_of({.capacity = 199, .used = 0, .available = 0}, 50) == 99);
  CHECK(used_of({.capacity = 10, .used = 0, .available = 20}) == 0);
}

}  // namespace efs::daemon
