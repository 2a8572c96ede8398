// SPDX-License-Identifier: BSD-3-Clause
#include "stage/copy/strided_order.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <numeric>
#include <set>

using namespace efs::stage;

TEST_CASE(
    "spread: everything once, and those that are beside one another come from different stretches",
    "[stage]") {
  for (const std::size_t count : {0UL, 1UL, 7UL, 8UL, 9UL, 64UL, 1000UL}) {
    for (const std::size_t ways : {1UL, 2UL, 8UL}) {
      INFO(count << " items, " << ways << " ways");
      std::vector<std::size_t> items(count);
      std::iota(items.begin(), items.end(), 0UL);
      const auto all = strided_order(items, ways);
      CHECK(std::set<std::size_t>(all.begin(), all.end()).size() == count);
      CHECK(all.size() == count);
      const std::size_t stretch = (count + ways - 1) / ways;
      if (count >= ways * ways) {
        for (std::size_t at = 0; at + 1 < all.size(); ++at) {
          CHECK((ways == 1 || all[at + 1] >= all[at] + stretch || all[at + 1] < all[at]));
        }
      }
      if (ways == 1) {
        CHECK(all == items);
      }
    }
  }
}
