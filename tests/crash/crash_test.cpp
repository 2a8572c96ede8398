// Power loss before every event that makes something durable, and proof that the enumeration would notice if one of them
// were missing.
#include <algorithm>
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

void hold_everything(Enumeration how) {
  for (const auto& scenario : {test::every_operation(), test::every_staging(), test::bulky_attributes()}) {
    for (const auto compaction : {std::uint64_t{16u << 20}, snapshot_often}) {
      how.smallest_compaction = compaction;
      hold(scenario, how);
    }
  }
}

void hold_random(unsigned places) {
  auto seed = test::seed();
  const char* long_run = std::getenv("EFS_CRASH_SEQUENCES");
  const int sequences = long_run != nullptr ? std::atoi(long_run) : 8;
  for (int i = 0; i < sequences; ++i, ++seed)
    for (const auto durability : {Durability::cache_line, Durability::page})
      hold(test::random_operations(seed, 80), {.durability = durability, .seed = seed, .rounds = 2, .places = places, .smallest_compaction = i % 2 == 0 ? snapshot_often : 16u << 20});
}

// Tries seeds until the enumeration fails, as it has to.
void bites(const test::Scenario& scenario, Enumeration how, const std::string& what) {
  for (how.seed = 1; how.seed <= 6; ++how.seed)
    if (enumerate(scenario, how)) return;
  FAIL("nobody noticed: " << what);
}

}  // namespace

TEST_CASE("power loss at any event of any operation, on persistent memory", "[crash]") { hold_everything({.durability = Durability::cache_line, .seed = test::seed()}); }

TEST_CASE("power loss at any event of any operation, on a file system with a page cache", "[crash]") { hold_everything({.durability = Durability::page, .seed = test::seed()}); }

TEST_CASE("power loss at any event of any operation, with two backends", "[crash]") {
  for (const auto durability : {Durability::cache_line, Durability::page}) hold_everything({.durability = durability, .seed = test::seed(), .rounds = 3, .places = 2});
}

TEST_CASE("power loss in random sequences", "[crash]") { hold_random(1); }
TEST_CASE("power loss in random sequences, with two backends", "[crash]") { hold_random(2); }

TEST_CASE("what the daemon syncs by itself from time to time is durable then", "[crash]") {
  const auto seed = test::seed();
  auto scenario = test::visible_operations();
  const auto file = std::find_if(scenario.begin(), scenario.end(), [](const auto& step) { return step.name == "create d"; });
  REQUIRE(file != scenario.end());
  scenario.erase(file + 1, scenario.end());
  for (int second = 1; second <= 5; ++second) scenario.push_back(test::tending(second == 5));
  hold(scenario, {.durability = Durability::page, .seed = seed, .rounds = 16});
  // And it is that sync which makes it so.
  bites(scenario, {.durability = Durability::page, .rounds = 8, .lies = {.deaf = "journal sync"}}, "the daemon's own sync");
}

TEST_CASE("one fsync of a new file makes its data and its name durable", "[crash]") {
  const auto scenario = test::new_file_with_fsync();
  for (const auto durability : {Durability::cache_line, Durability::page})
    for (const unsigned places : {1U, 2U}) hold(scenario, {.durability = durability, .seed = test::seed(), .rounds = 16, .places = places});
  for (const char* event : {"data sync", "container name sync", "journal sync"}) bites(scenario, {.durability = Durability::page, .rounds = 16, .lies = {.deaf = event}}, event);
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
  bites(test::equal_records(), {.durability = Durability::page, .rounds = 40, .lies = {.keeps_old = true}}, "R2: what lies behind the last good record is not cleared");
}

TEST_CASE("every single drain and sync of the journal counts", "[crash]") {
  const auto scenario = test::visible_operations();
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    const auto events = test::events_of(scenario, {.durability = durability});
    std::size_t tried = 0;
    const std::string kind = durability == Durability::cache_line ? "drain" : "journal sync";
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i].name != kind) continue;
      // One that follows in the same step does it, too: nothing is answered in between.
      const auto again = std::find_if(events.begin() + static_cast<std::ptrdiff_t>(i) + 1, events.end(), [&](const auto& event) { return event.step != events[i].step || event.name == kind || event.name == "journal sync"; });
      if (again != events.end() && (again->step == events[i].step || (i + 1 < events.size() && events[i + 1].name == "journal sync"))) continue;
      ++tried;
      bites(scenario, {.durability = durability, .rounds = 8, .lies = {.deaf = kind, .deaf_at = i + 1}}, kind + ", event " + std::to_string(i + 1));
    }
    CHECK(tried > 3);
  }
}
