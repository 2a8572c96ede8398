// SPDX-License-Identifier: BSD-3-Clause
// Which backend each input goes to.
#include "stage/plan/placement.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace efs;
using namespace efs::stage;

namespace {

config::JobConfig two(config::OnFull on_full) {
  config::JobConfig config;
  config.root_dir = "/r";
  config.backends = {{.id = "fast"}, {.id = "bulk"}};
  config.on_full = on_full;
  config.resources = {{.path = "/r", .backend = "fast"}, {.path = "/r/big", .backend = "bulk"}};
  return config;
}

Plan plan_of(std::vector<std::pair<std::string, std::uint64_t>> files) {
  Plan plan;
  for (auto& [path, needed] : files) {
    plan.entries.push_back({.path = path, .size = needed, .needed = needed});
  }
  return plan;
}

std::vector<unsigned> places(const Plan& plan) {
  std::vector<unsigned> all;
  for (const auto& entry : plan.entries) {
    all.push_back(entry.place);
  }
  return all;
}

}  // namespace

TEST_CASE("inputs go to the backend of the resource that owns them") {
  Plan plan = plan_of({{"a", 10}, {"big/b", 20}, {"c", 30}});
  place_entries(two(config::OnFull::error), plan, {100, 100});
  CHECK(plan.problems.empty());
  CHECK(places(plan) == std::vector<unsigned>{0, 1, 0});
  REQUIRE(plan.shares.size() == 2);
  CHECK(plan.shares[0].backend == "fast");
  CHECK(plan.shares[0].needed == 40);
  CHECK(plan.shares[0].files == 2);
  CHECK(plan.shares[1].needed == 20);
}

TEST_CASE(
    "inputs that do not fit are a problem of their backend, however much room the other has") {
  Plan plan = plan_of({{"a", 60}, {"b", 60}, {"big/c", 10}});
  place_entries(two(config::OnFull::error), plan, {100, 1000});
  REQUIRE(plan.problems.size() == 1);
  CHECK(plan.problems[0].reason.contains("backend fast need 120 B and it takes 100 B"));
  CHECK(plan.problems[0].reason.contains("on-full: spill"));
}

TEST_CASE("with spill, inputs go on to the next backend after all who belong there") {
  Plan plan = plan_of({{"a", 60}, {"b", 50}, {"big/c", 40}, {"d", 30}});
  place_entries(two(config::OnFull::spill), plan, {100, 100});
  CHECK(plan.problems.empty());
  CHECK(places(plan) == std::vector<unsigned>{0, 1, 1, 0});
  CHECK(plan.shares[1].spilled == 1);
  CHECK(plan.shares[0].spilled == 0);
  // From the last to the first, too.
  Plan other = plan_of({{"big/a", 90}, {"big/b", 90}});
  place_entries(two(config::OnFull::spill), other, {100, 100});
  CHECK(places(other) == std::vector<unsigned>{1, 0});
}

TEST_CASE("a file that fits into no backend is named") {
  Plan plan = plan_of({{"a", 120}, {"b", 50}});
  place_entries(two(config::OnFull::spill), plan, {100, 110});
  REQUIRE(plan.problems.size() == 1);
  CHECK(plan.problems[0].reason.contains(
      "1 inputs of 120 B fit into no backend, the largest of them a"));
  // A backend whose room is not known takes all.
  Plan unknown = plan_of({{"a", 120}, {"b", 50}});
  place_entries(two(config::OnFull::spill), unknown, {100, std::nullopt});
  CHECK(unknown.problems.empty());
  CHECK(places(unknown) == std::vector<unsigned>{1, 0});
}

TEST_CASE("one place may be named for all, and with one backend there is nothing to place") {
  Plan plan = plan_of({{"a", 10}, {"big/b", 20}});
  place_entries(two(config::OnFull::error), plan, {100, 100}, 1);
  CHECK(places(plan) == std::vector<unsigned>{1, 1});
  config::JobConfig one = two(config::OnFull::error);
  one.backends.pop_back();
  Plan alone = plan_of({{"a", 1000}});
  place_entries(one, alone, {100});
  CHECK(alone.problems.empty());
  CHECK(alone.shares.empty());
}
