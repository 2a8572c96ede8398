// SPDX-License-Identifier: BSD-3-Clause
// Rates: objects/checkpoint/pace.cpp.
#include "objects/checkpoint/pace.hpp"

#include <catch2/catch_test_macros.hpp>

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

using namespace std::chrono_literals;
using objects::Moment;

TEST_CASE("writes at a pace end one after another", "[objects]") {
  objects::Pace pace(1e6);  // 1 byte per microsecond
  CHECK(pace.limited());
  const Moment start = Moment() + 1h;
  CHECK(pace.end_of(10000, start) == start + 5ms);  // 10 ms, less the burst
  CHECK(pace.end_of(10000, start + 5ms) == start + 15ms);
  CHECK(pace.end_of(10000, start + 18ms) == start + 25ms);  // 3 ms late: made up for
  CHECK(pace.end_of(10000, start + 1h) == start + 1h + 5ms);
  CHECK_FALSE(objects::Pace().limited());
}

TEST_CASE("the share of the store follows the rates", "[objects]") {
  CHECK(objects::direct_share(1000, 4e9, 1e9) == 200);
  CHECK(objects::direct_share(1000, 1e9, 1e9) == 500);
  CHECK(objects::direct_share(1000, 1e9, 3e9) == 750);
  CHECK(objects::direct_share(1001, 0, 3e9) == 500);
  CHECK(objects::direct_share(1000, 1e9, 0) == 500);
  CHECK(objects::direct_share(0, 1e9, 1e9) == 0);
  CHECK(objects::direct_share(1000, 1, 1e300) == 1000);
  CHECK(objects::direct_share(1000, 1e300, 1) == 0);
  // Both parts take the same time.
  const std::uint64_t bytes = 536870912;
  const std::uint64_t direct = objects::direct_share(bytes, 6e9, 1.5e9);
  CHECK(direct * 4 + 8 - (bytes - direct) <= 16);
}

TEST_CASE("a rate is a mean of what was measured", "[objects]") {
  objects::Rate rate;
  CHECK(rate.value() == 0);
  rate.add(0, 1s);
  rate.add(100, 0s);
  CHECK(rate.value() == 0);
  rate.add(100, 2s);
  CHECK(rate.value() == 50);
  rate.add(100, 1s);
  CHECK(rate.value() == 75);
}

}  // namespace efs::objects_test
