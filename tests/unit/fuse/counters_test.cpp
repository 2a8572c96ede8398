// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/watchers.hpp"
#include "fuse/counters.hpp"

using namespace efs::fuse;

TEST_CASE("every kind of request has a name of its own") {
  std::set<std::string> names;
  for (std::size_t i = 0; i < operation_count; ++i) {
    names.insert(name_of(static_cast<Operation>(i)));
  }
  CHECK(names.size() == operation_count);
}

TEST_CASE("counts, errors, times") {
  OperationCounters c;
  c.add(500, false);
  c.add(1'500, true);
  c.add(1'000'000, false);
  CHECK(c.count == 3);
  CHECK(c.errors == 1);
  CHECK(c.nanoseconds == 1'002'000);
  CHECK(c.shortest == 500);
  CHECK(c.longest == 1'000'000);
  CHECK(c.histogram[0] == 1);   // below 1 us
  CHECK(c.histogram[1] == 1);   // 1 us
  CHECK(c.histogram[10] == 1);  // 512 to 1023 us
  c.add(~std::uint64_t{0}, false);
  CHECK(c.histogram.back() == 1);
}

TEST_CASE("nothing is lost between threads") {
  OperationCounters c;
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 1; t <= 4; ++t) {
      threads.emplace_back([&c, t] {
        for (std::uint64_t i = 0; i < 10'000; ++i) {
          c.add(t * 1'000 + i, i % 2 == 0);
        }
      });
    }
  }
  CHECK(c.count == 40'000);
  CHECK(c.errors == 20'000);
  CHECK(c.shortest == 1'000);
  CHECK(c.longest == 13'999);
  std::uint64_t sum = 0;
  for (const auto& bucket : c.histogram) {
    sum += bucket;
  }
  CHECK(sum == 40'000);
}

TEST_CASE("figures show the operations that were used") {
  Counters counters;
  counters.of(Operation::read).add(2'000'000, false);
  counters.of(Operation::read).add(4'000'000, true);
  counters.opens = 3;
  counters.passthrough_opens = 2;
  counters.read_bytes = 4096;
  const auto json = efs::daemon::figures_of(counters);
  CHECK(json["requests"] == 2);
  CHECK(json["errors"] == 1);
  CHECK(json["opens"] == 3);
  CHECK(json["passthrough_opens"] == 2);
  CHECK(json["daemon_opens"] == 1);
  CHECK(json["read_bytes"] == 4096);
  REQUIRE(json["operations"].size() == 1);
  const auto& read = json["operations"]["read"];
  CHECK(read["count"] == 2);
  CHECK(read["errors"] == 1);
  CHECK(read["min_seconds"] == 0.002);
  CHECK(read["max_seconds"] == 0.004);
  CHECK(read["mean_seconds"] == 0.003);
  CHECK(read["histogram_us"].size() == 13);
  CHECK(read["histogram_us"][11] == 1);
  CHECK(read["histogram_us"][12] == 1);
}
