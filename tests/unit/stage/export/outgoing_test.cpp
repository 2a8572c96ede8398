// SPDX-License-Identifier: BSD-3-Clause
// The states of a result, and what each of them can say.
#include "stage/export/outgoing.hpp"

#include <catch2/catch_test_macros.hpp>
#include <variant>

namespace efs::outgoing_test {

using stage::Action;
using stage::Outgoing;
using stage::outgoing::Named;
using stage::outgoing::Settled;
using stage::outgoing::Waiting;
using stage::outgoing::Written;

TEST_CASE("outgoing: a result waits at first, and nothing of it is on the PFS", "[export]") {
  const Outgoing out;
  CHECK(out.is<Waiting>());
  CHECK(out.held().empty());
  CHECK_FALSE(out.partial_left());
}

TEST_CASE("outgoing: a claim is of a result without its name", "[export]") {
  Outgoing out;
  SECTION("one that waits") {}
  SECTION("one that is written") {
    out.state = Written{};
  }
  out.hold("node 2 has it");
  CHECK(out.held() == "node 2 has it");
  SECTION("until it is dropped") {
    out.hold({});
    CHECK(out.held().empty());
    CHECK_FALSE(out.is<Named>());
  }
  SECTION("until the result is named") {
    out.state = Named{};
    CHECK(out.held().empty());
    CHECK_THROWS_AS(out.hold("node 3"), std::bad_variant_access);
  }
  SECTION("until the result is settled") {
    out.settle(Action::failed, "why");
    CHECK(out.held().empty());
    CHECK_THROWS_AS(out.hold("node 3"), std::bad_variant_access);
  }
}

TEST_CASE("outgoing: a partial is left by a result that needs it no longer", "[export]") {
  Outgoing out;
  out.state = Written{};
  CHECK_THROWS_AS(out.set_partial_left(true), std::bad_variant_access);
  SECTION("because the name was there already") {
    out.state = Named{.there_already = true};
  }
  SECTION("because it failed") {
    out.settle(Action::failed, "why");
  }
  CHECK_FALSE(out.partial_left());
  out.set_partial_left(true);
  CHECK(out.partial_left());
  out.set_partial_left(false);
  CHECK_FALSE(out.partial_left());
}

TEST_CASE("outgoing: settling completes the receipt's entry", "[export]") {
  Outgoing out;
  out.state = Named{.there_already = true};
  out.settle(Action::kept, "as it was").is_of_before = true;
  CHECK(out.entry.action == Action::kept);
  CHECK(out.entry.reason == "as it was");
  const auto& settled = std::get<Settled>(out.state);
  CHECK(settled.is_of_before);
  CHECK_FALSE(settled.no_room);
  CHECK_FALSE(settled.partial_left);
}

}  // namespace efs::outgoing_test
