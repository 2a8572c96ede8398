// SPDX-License-Identifier: BSD-3-Clause
#include "base/extents.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <vector>

#include "support/temp.hpp"

namespace efs::extents_test {

namespace {

constexpr std::uint64_t bytes = 200;
constexpr std::uint64_t hole = ~std::uint64_t{0};

// The place of each byte of the file.
using Model = std::vector<std::uint64_t>;

// The extents of the model: maximal runs.
std::vector<Extent> runs_of(const Model& model) {
  std::vector<Extent> runs;
  for (std::uint64_t at = 0; at < model.size(); ++at) {
    if (model[at] == hole) {
      continue;
    }
    if (!runs.empty() && runs.back().end() == at &&
        runs.back().device + runs.back().length == model[at]) {
      ++runs.back().length;
    } else {
      runs.push_back({.offset = at, .device = model[at], .length = 1});
    }
  }
  return runs;
}

// Checks find() for every byte.
void check_find(const Extents& extents, const std::vector<Extent>& runs) {
  std::size_t next = 0;
  for (std::uint64_t at = 0; at <= bytes; ++at) {
    while (next < runs.size() && runs[next].end() <= at) {
      ++next;
    }
    const auto found = extents.find(at);
    REQUIRE(found.has_value() == (next < runs.size()));
    if (found) {
      REQUIRE(*found == runs[next]);
    }
  }
}

// Checks a random range, and the sums.
void check_parts(const Extents& extents, const Model& model, std::mt19937_64& random) {
  const std::uint64_t begin = random() % bytes, end = begin + 1 + random() % (bytes - begin);
  Model parts(bytes, hole);
  for (const auto& part : extents.within(begin, end)) {
    for (std::uint64_t at = part.offset; at < part.end(); ++at) {
      parts[at] = part.device + (at - part.offset);
    }
  }
  std::vector<bool> missing(bytes);
  for (const auto& gap : extents.gaps(begin, end)) {
    std::fill_n(missing.begin() + static_cast<long>(gap.offset), gap.length, true);
  }
  std::uint64_t physical = 0, last = 0;
  for (std::uint64_t at = 0; at < bytes; ++at) {
    const bool in = at >= begin && at < end;
    REQUIRE(parts[at] == (in ? model[at] : hole));
    REQUIRE(missing[at] == (in && model[at] == hole));
    physical += model[at] != hole ? 1 : 0;
    last = model[at] != hole ? at + 1 : last;
  }
  REQUIRE(extents.physical() == physical);
  REQUIRE(extents.end() == last);
}

}  // namespace

TEST_CASE("extents agree with a model of single bytes", "[base]") {
  const auto seed = efs::test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  Extents extents;
  Model model(bytes, hole);
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t begin = random() % bytes, end = begin + 1 + random() % (bytes - begin);
    // places close to the offsets, so that neighbours often meet on the device too
    const auto device = [&](std::uint64_t offset) {
      return offset + 1000 * (random() % 2);
    };
    std::fill(model.begin() + static_cast<long>(begin), model.begin() + static_cast<long>(end),
              hole);
    const auto put = [&](Extents& to, Extent extent) {
      to.map(extent);
      for (std::uint64_t at = 0; at < extent.length; ++at) {
        model[extent.offset + at] = extent.device + at;
      }
    };
    if (random() % 2 == 0) {
      put(extents, {.offset = begin, .device = device(begin), .length = end - begin});
    } else {
      Extents with;
      for (std::uint64_t at = begin; at < end; at += 1 + random() % 40) {
        put(with, {.offset = at, .device = device(at), .length = 1 + random() % (end - at)});
      }
      if (random() % 3 == 0) {
        with = {};
        std::fill(model.begin() + static_cast<long>(begin), model.begin() + static_cast<long>(end),
                  hole);
      }
      extents.replace(begin, end, std::move(with));
    }
    const auto runs = runs_of(model);
    REQUIRE(extents.list() == runs);
    REQUIRE(extents.size() == runs.size());
    check_find(extents, runs);
    check_parts(extents, model, random);
  }
}

TEST_CASE("the parts of a range of extents, and those between them", "[base]") {
  Extents extents;
  extents.map({.offset = 100, .device = 1100, .length = 150});
  extents.map({.offset = 250, .device = 5000, .length = 50});
  CHECK(extents.physical() == 200);
  CHECK(extents.end() == 300);
  CHECK(extents.within(240, 260) ==
        std::vector{Extent{.offset = 240, .device = 1240, .length = 10},
                    Extent{.offset = 250, .device = 5000, .length = 10}});
  CHECK(extents.gaps(0, 400) == std::vector{Extent{.offset = 0, .device = 0, .length = 100},
                                            Extent{.offset = 300, .device = 0, .length = 100}});
  CHECK(extents.gaps(120, 260).empty());
  CHECK(extents.covers(100, 300));
  CHECK_FALSE(extents.covers(99, 101));
  CHECK_FALSE(extents.covers(299, 301));
}

TEST_CASE("extents reach the ends of 64 bits", "[base]") {
  Extents extents;
  extents.map({.offset = hole - 10, .device = 0, .length = 10});
  extents.map({.offset = 0, .device = hole - 20, .length = 20});
  CHECK(extents.find(hole - 1)->offset == hole - 10);
  CHECK_FALSE(extents.find(hole));
  CHECK(extents.find(20)->offset == hole - 10);
  extents.replace(0, hole, {});
  CHECK(extents.size() == 0);
  CHECK(Extent{.offset = hole - 10, .device = 0, .length = 10}.is_sound());
  CHECK_FALSE(Extent{.offset = hole - 10, .device = 0, .length = 11}.is_sound());
  CHECK_FALSE(Extent{.offset = 0, .device = hole - 10, .length = 11}.is_sound());
  CHECK_FALSE(Extent{.offset = 0, .device = 0, .length = 0}.is_sound());
}

}  // namespace efs::extents_test
