// SPDX-License-Identifier: BSD-3-Clause
#include "fs/segment_tree.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "support/temp.hpp"

using efs::fs::Range;
using efs::fs::SegmentTree;

TEST_CASE("segments are found, overlaps and empty ranges refused") {
  SegmentTree<int> tree;
  CHECK(tree.insert({10, 20}, 1));
  CHECK(tree.insert({20, 30}, 2));
  CHECK_FALSE(tree.insert({15, 25}, 3));
  CHECK_FALSE(tree.insert({0, 11}, 3));
  CHECK_FALSE(tree.insert({5, 5}, 3));
  CHECK_FALSE(tree.insert({0, 100}, 3));
  CHECK(tree.find(9) == nullptr);
  CHECK(tree.find(10)->value == 1);
  CHECK(tree.find(19)->value == 1);
  CHECK(tree.find(20)->value == 2);
  CHECK(tree.find(30) == nullptr);
  CHECK(tree.gaps({0, 40}) == std::vector<Range>{{0, 10}, {30, 40}});
  CHECK(tree.erase({19, 20}) == 1);
  CHECK(tree.find(12) == nullptr);
  CHECK(tree.size() == 1);
}

TEST_CASE("the tree does what a map of single bytes does") {
  const auto seed = efs::test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  SegmentTree<int> tree;
  constexpr std::uint64_t size = 200;
  std::map<std::uint64_t, int> model;  // byte -> segment number
  std::map<int, Range> segments;
  for (int step = 0; step < 20000; ++step) {
    const std::uint64_t begin = random() % size, end = begin + random() % 20;
    if (random() % 3 != 0) {
      bool free = begin < end;
      for (auto at = begin; at < end; ++at) {
        free = free && !model.contains(at);
      }
      REQUIRE(tree.insert({begin, end}, step) == free);
      if (free) {
        for (auto at = begin; at < end; ++at) {
          model[at] = step;
        }
        segments[step] = {begin, end};
      }
    } else {
      std::size_t expected = 0;
      for (auto it = segments.begin(); it != segments.end();) {
        const bool touches = it->second.begin < end && begin < it->second.end && begin < end;
        if (touches) {
          for (auto at = it->second.begin; at < it->second.end; ++at) {
            model.erase(at);
          }
          it = segments.erase(it);
          ++expected;
        } else {
          ++it;
        }
      }
      if (begin < end) {
        REQUIRE(tree.erase({begin, end}) == expected);
      }
    }
    const auto probe = random() % (size + 20);
    const auto* found = tree.find(probe);
    REQUIRE((found != nullptr) == model.contains(probe));
    if (found != nullptr) {
      REQUIRE(found->value == model[probe]);
    }
    std::uint64_t uncovered = 0;
    for (const Range& gap : tree.gaps({0, size + 20})) {
      uncovered += gap.length();
    }
    REQUIRE(uncovered + model.size() == size + 20);
  }
}
