// SPDX-License-Identifier: BSD-3-Clause
// Work on all CPUs: runs every item once and reports failed items.
#include "base/parallel_for.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "support/no_threads.hpp"

using namespace efs;

TEST_CASE("side by side: every item once, in pieces of at most the grain, with threads and without",
          "[threads]") {
  const auto everything = [](std::size_t count, std::size_t grain) {
    std::vector<std::atomic<int>> seen(count);
    std::atomic<bool> too_large{false};
    const Status done =
        parallel_for(count, grain, [&](std::size_t begin, std::size_t end) -> Status {
          if (begin >= end || end - begin > grain) {
            too_large = true;
          }
          for (std::size_t i = begin; i < end; ++i) {
            ++seen[i];
          }
          return {};
        });
    return done && !too_large && std::ranges::all_of(seen, [](const auto& n) { return n == 1; });
  };
  for (const std::size_t count : {0UL, 1UL, 2UL, 1000UL, 12345UL}) {
    for (const std::size_t grain : {1UL, 7UL, 100'000UL}) {
      CHECK(everything(count, grain));
    }
  }
  const test::NoThreads none;
  CHECK(everything(1000, 1));
}

TEST_CASE("side by side: an error is told and ends it, so does a want of memory", "[threads]") {
  std::atomic<std::size_t> begun = 0;
  const Status failed = parallel_for(1'000'000, 1, [&](std::size_t begin, std::size_t) -> Status {
    ++begun;
    return begin == 10 ? fail(EIO, "the tenth") : Status();
  });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().what == "the tenth");
  CHECK(begun < 1'000'000);
  const Status empty = parallel_for(100, 1, [](std::size_t begin, std::size_t) -> Status {
    if (begin == 3) {
      throw std::bad_alloc();
    }
    return {};
  });
  REQUIRE_FALSE(empty);
  CHECK(empty.error().code == ENOMEM);
}
