// SPDX-License-Identifier: BSD-3-Clause
// The backoff of retries for claimed names.
#include "stage/pfs/patience.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/stage/counted_pauses.hpp"

using namespace efs;
using namespace efs::stage;
using efs::stage::test::CountedPauses;

namespace {

constexpr Nanoseconds one_second = 1'000'000'000;

}  // namespace

TEST_CASE("patience ends when for ten seconds nothing has moved, in whatever order it is told",
          "[stage]") {
  CountedPauses pauses;
  const std::atomic<bool> cancel{false};
  Patience patience(cancel, pauses);
  int tries = 0;
  while (patience.wait(tries++ % 2 == 0 ? std::vector<std::string>{"a", "b"}
                                        : std::vector<std::string>{"b", "a"})) {
  }
  CHECK(pauses.passed() >= 10 * one_second);
  CHECK(pauses.passed() < 11 * one_second);
  CHECK(tries > 20);
  CHECK(tries < 60);
  SECTION("it does not begin anew for the same") {
    CHECK_FALSE(patience.wait({"a", "b"}));
  }
  SECTION("for what another has by now it does") {
    const auto before = pauses.passed();
    while (patience.wait({"a"})) {
    }
    CHECK(pauses.passed() - before >= 10 * one_second);
  }
}

TEST_CASE("patience: what moves is waited for as long as it does", "[stage]") {
  CountedPauses pauses;
  const std::atomic<bool> cancel{false};
  Patience patience(cancel, pauses);
  for (int holder = 0; holder < 50; ++holder) {
    for (const auto begin = pauses.passed(); pauses.passed() - begin < 5 * one_second;) {
      REQUIRE(patience.wait({"held by " + std::to_string(holder)}));
    }
  }
}

TEST_CASE("patience: nothing is waited for any more once it is cancelled", "[stage]") {
  std::atomic<bool> cancel{false};
  CountedPauses pauses([&] { cancel = true; });
  Patience patience(cancel, pauses);
  CHECK_FALSE(patience.wait({"a"}));
  CHECK(pauses.passed() < one_second);
  const auto before = pauses.passed();
  CHECK_FALSE(patience.wait({"b"}));
  CHECK(pauses.passed() == before);
}
