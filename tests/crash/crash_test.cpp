// Power loss before every event that makes something durable, and proof that the enumeration would notice if one of them
// were missing.
#include <catch2/catch_test_macros.hpp>

#include "crash/scenarios.hpp"
#include "support/temp.hpp"

using namespace efs;
using test::Enumeration;
using test::enumerate;

namespace {

constexpr std::uint64_t snapshot_often = 1500;  // bytes of journal

void hold(const test::Scenario& scenario, Enumeration how) {
  std::size_t ends = 0;
  const auto wrong = enumerate(scenario, how, &ends);
  INFO("EFS_TEST_SEED=" << how.seed << ", " << ends << " ends of the world tried");
  INFO((wrong ? *wrong : std::string()));
  CHECK_FALSE(wrong);
  CHECK(ends > how.rounds);
}

// Tries seeds until the enumeration fails, as it has to.
void bites(const test::Scenario& scenario, Enumeration how, const std::string& what) {
  for (how.seed = 1; how.seed <= 6; ++how.seed)
    if (enumerate(scenario, how)) return;
  FAIL("nobody noticed: " << what);
}

}  // namespace

TEST_CASE("power loss at any event of any operation, on persistent memory", "[crash]") {
  const auto seed = test::seed();
  hold(test::every_operation(), {.durability = Durability::cache_line, .seed = seed});
  hold(test::every_operation(), {.durability = Durability::cache_line, .seed = seed, .smallest_compaction = snapshot_often});
}

TEST_CASE("power loss at any event of any operation, on a file system with a page cache", "[crash]") {
  const auto seed = test::seed();
  hold(test::every_operation(), {.durability = Durability::page, .seed = seed});
  hold(test::every_operation(), {.durability = Durability::page, .seed = seed, .smallest_compaction = snapshot_often});
}

TEST_CASE("power loss in random sequences", "[crash]") {
  auto seed = test::seed();
  const char* long_run = std::getenv("EFS_CRASH_SEQUENCES");
  const int sequences = long_run != nullptr ? std::atoi(long_run) : 8;
  for (int i = 0; i < sequences; ++i, ++seed)
    for (const auto durability : {Durability::cache_line, Durability::page})
      hold(test::random_operations(seed, 80), {.durability = durability, .seed = seed, .rounds = 2, .smallest_compaction = i % 2 == 0 ? snapshot_often : 16u << 20});
}

TEST_CASE("the enumeration notices each kind of event that is missing", "[crash]") {
  const auto scenario = test::every_operation();
  bites(scenario, {.durability = Durability::cache_line, .lies = {.deaf = "drain"}}, "records are not drained");
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    bites(scenario, {.durability = durability, .lies = {.deaf = "data sync"}}, "R1: data is not synced");
    bites(scenario, {.durability = durability, .lies = {.deaf = "container name sync"}}, "R6: a container's creation is not synced");
    bites(scenario, {.durability = durability, .lies = {.deaf = "all data sync"}}, "R1: staged data is not synced");
    bites(scenario, {.durability = durability, .smallest_compaction = snapshot_often, .lies = {.deaf = "names sync"}}, "R5: the switch is not made durable");
  }
  bites(scenario, {.durability = Durability::page, .lies = {.deaf = "journal sync"}}, "records are not synced");
  // On persistent memory the drain before it does the same.
  bites(scenario, {.durability = Durability::page, .smallest_compaction = snapshot_often, .lies = {.deaf = "journal sync"}}, "R5: a snapshot is not synced before the switch");
}

TEST_CASE("the enumeration notices each rule that is broken", "[crash]") {
  const auto scenario = test::every_operation();
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    bites(scenario, {.durability = durability, .rules = {.settle_after_sync = false}}, "R1");
    bites(scenario, {.durability = durability, .rules = {.free_unknown = false}}, "R4");
    bites(scenario, {.durability = durability, .rules = {.sync_before_replace = false}}, "R6");
  }
  bites(scenario, {.durability = Durability::page, .rules = {.free_after_durable = false}}, "R3");
  bites(scenario, {.durability = Durability::page, .rounds = 40, .lies = {.keeps_old = true}}, "R2: what lies behind the last good record is not cleared");
}

TEST_CASE("every single drain and sync of the journal counts", "[crash]") {
  const auto scenario = test::visible_operations();
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    const auto events = test::events_of(scenario, {.durability = durability});
    std::size_t tried = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i] != (durability == Durability::cache_line ? "drain" : "journal sync")) continue;
      if (i + 1 < events.size() && events[i + 1] == "journal sync") continue;  // that one does it, too
      ++tried;
      bites(scenario, {.durability = durability, .rounds = 8, .lies = {.deaf = events[i], .deaf_at = i + 1}}, events[i] + ", event " + std::to_string(i + 1));
    }
    CHECK(tried > 3);
  }
}
