// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/known_range.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>

using efs::intercept::KnownRange;

TEST_CASE("known range: a run is held only as a whole", "[intercept]") {
  const KnownRange range{100, 200};
  CHECK(range.holds(100, 100));
  CHECK(range.holds(150, 0));
  CHECK_FALSE(range.holds(99, 2));
  CHECK_FALSE(range.holds(199, 2));
  CHECK_FALSE(range.holds(200, 1));
  CHECK_FALSE(range.holds(150, std::numeric_limits<std::uint64_t>::max()));
  CHECK_FALSE(KnownRange{}.holds(0, 1));
}

TEST_CASE("known range: runs that touch it make it longer, others change nothing", "[intercept]") {
  KnownRange range;
  range.add(100, 50);
  CHECK((range.begin == 100 && range.end == 150));
  range.add(150, 10);
  CHECK((range.begin == 100 && range.end == 160));
  range.add(90, 10);
  CHECK((range.begin == 90 && range.end == 160));
  range.add(120, 5);
  CHECK((range.begin == 90 && range.end == 160));
  range.add(161, 10);
  CHECK((range.begin == 90 && range.end == 160));
  range.add(0, 89);
  CHECK((range.begin == 90 && range.end == 160));
  range.add(0, 1000);
  CHECK((range.begin == 0 && range.end == 1000));
}
