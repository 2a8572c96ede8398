// SPDX-License-Identifier: BSD-3-Clause
#include "fs/completed_requests.hpp"

#include <catch2/catch_test_macros.hpp>

using efs::fs::CompletedRequests;

TEST_CASE("What was noted is found, what was not is not", "[fs][answers]") {
  CompletedRequests answers;
  CHECK_FALSE(answers.find(0));
  answers.note(0, 7);
  CHECK_FALSE(answers.find(0));
  answers.note(2, 7);
  CHECK(answers.find(2) == 7);
  CHECK_FALSE(answers.find(4));
  answers.clear();
  CHECK_FALSE(answers.find(2));
}

TEST_CASE("The last ones are kept, in their order", "[fs][answers]") {
  CompletedRequests answers;
  for (std::uint64_t i = 1; i <= CompletedRequests::capacity + 10; ++i) {
    answers.note(i, i + 1);
  }
  CHECK_FALSE(answers.find(10));
  CHECK(answers.find(11) == 12);
  std::uint64_t expected = 11;
  answers.for_each([&](std::uint64_t request, std::uint64_t ino) {
    REQUIRE(request == expected);
    REQUIRE(ino == ++expected);
  });
  CHECK(expected == CompletedRequests::capacity + 11);
}
