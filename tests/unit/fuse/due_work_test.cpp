// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/due_work.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace efs::fuse;

TEST_CASE("due work: a request does it when it is due", "[fuse]") {
  int done = 0;
  DueWork work([&] {
    ++done;
    return std::chrono::seconds(done);
  });
  const auto begin = DueWork::Clock::now();
  work.run_if_due(begin);
  CHECK(done == 1);
  work.run_if_due(begin + std::chrono::milliseconds(999));
  CHECK(done == 1);
  work.run_if_due(begin + std::chrono::seconds(1));
  CHECK(done == 2);
  work.run_if_due(begin + std::chrono::seconds(2));
  CHECK(done == 2);
  work.run_if_due(begin + std::chrono::seconds(10));
  CHECK(done == 3);
}

TEST_CASE("due work: not within itself", "[fuse]") {
  int done = 0;
  DueWork* again = nullptr;
  DueWork work([&] {
    ++done;
    again->run_if_due(DueWork::Clock::now());
    return std::chrono::seconds(1);
  });
  again = &work;
  work.run_if_due(DueWork::Clock::now());
  CHECK(done == 1);
}
