// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/extent_map.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>

#include "support/temp.hpp"

namespace efs::devdax {

TEST_CASE("extents that touch in the file and on the device are one", "[devdax]") {
  ExtentMap map;
  map.insert({.offset = 100, .device = 1100, .length = 50});
  map.insert({.offset = 200, .device = 1200, .length = 50});
  map.insert({.offset = 150, .device = 1150, .length = 50});
  CHECK(map.within(0, 1000) ==
        std::vector{FileExtent{.offset = 100, .device = 1100, .length = 150}});
  CHECK(map.physical() == 150);
  map.insert({.offset = 250, .device = 5000, .length = 50});
  CHECK(map.size() == 2);
  CHECK(map.end() == 300);
  CHECK(map.covers(100, 300));
  CHECK_FALSE(map.covers(99, 101));
  CHECK_FALSE(map.covers(299, 301));
  CHECK(map.gaps(0, 400) == std::vector{FileExtent{.offset = 0, .device = 0, .length = 100},
                                        FileExtent{.offset = 300, .device = 0, .length = 100}});
  CHECK(map.gaps(120, 260).empty());
  CHECK(map.within(240, 260) ==
        std::vector{FileExtent{.offset = 240, .device = 1240, .length = 10},
                    FileExtent{.offset = 250, .device = 5000, .length = 10}});
}

TEST_CASE("a replaced range of extents agrees with a map of every byte", "[devdax]") {
  const auto seed = test::seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t bound) {
    return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(random);
  };
  constexpr std::uint64_t bytes = 200;
  ExtentMap map;
  std::vector<std::uint64_t> places(bytes);  // 0: a hole
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t begin = below(bytes), end = begin + 1 + below(bytes - begin);
    ExtentMap with;
    for (std::uint64_t i = begin; i < end; ++i) {
      places[i] = 0;
    }
    if (below(3) != 0) {
      const std::uint64_t from = begin + below(end - begin), length = 1 + below(end - from);
      const std::uint64_t device = below(2) == 0 ? 1000 + from : 1 + below(10'000);
      with.insert({.offset = from, .device = device, .length = length});
      for (std::uint64_t i = 0; i < length; ++i) {
        places[from + i] = device + i;
      }
    }
    map.split(begin);
    map.split(end);
    map.replace(begin, end, std::move(with));
    std::uint64_t physical = 0;
    for (std::uint64_t i = 0; i < bytes; ++i) {
      const auto found = map.find(i);
      const bool in = found && found->offset <= i;
      REQUIRE((in ? found->device + (i - found->offset) : 0) == places[i]);
      physical += in ? 1 : 0;
    }
    REQUIRE(map.physical() == physical);
  }
}

}  // namespace efs::devdax
