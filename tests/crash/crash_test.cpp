// SPDX-License-Identifier: BSD-3-Clause
// Power loss before every event that makes data durable. Also proves that the enumeration notices
// if an event has no effect.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "crash/scenarios.hpp"
#include "store/format.hpp"
#include "store/journal.hpp"
#include "support/sim_medium.hpp"
#include "support/temp.hpp"

using namespace efs;
using test::enumerate;
using test::Enumeration;

namespace {

constexpr std::uint64_t snapshot_often = 1500;  // bytes of journal

void hold(const test::Scenario& scenario, Enumeration how) {
  const test::Sample sample(how.seed);
  how.first = sample.first;
  how.step = sample.step;
  std::size_t ends = 0;
  const auto wrong = enumerate(scenario, how, &ends);
  INFO("EFS_SAMPLE=" << how.step << " EFS_TEST_SEED=" << how.seed << ", " << ends
                     << " ends of the world tried");
  INFO((wrong ? *wrong : std::string()));
  CHECK_FALSE(wrong);
  CHECK(ends * how.step > how.rounds);
}

void hold_everything(Enumeration how) {
  for (const auto& scenario : {test::every_operation(), test::every_staging(), test::every_export(),
                               test::every_loss(), test::every_fetch(), test::every_eviction(),
                               test::every_move(), test::bulky_attributes()}) {
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
  for (int i = 0; i < sequences; ++i, ++seed) {
    for (const auto durability : {Durability::cache_line, Durability::page}) {
      hold(test::random_operations(seed, 80),
           {.durability = durability,
            .seed = seed,
            .rounds = 2,
            .places = places,
            .smallest_compaction = i % 2 == 0 ? snapshot_often : 16u << 20});
    }
  }
}

// Tries seeds until the enumeration fails, as it must.
void bites(const test::Scenario& scenario, Enumeration how, const std::string& what) {
  for (how.seed = 1; how.seed <= 6; ++how.seed) {
    if (enumerate(scenario, how)) {
      return;
    }
  }
  FAIL("nobody noticed: " << what << "; places: " << how.places);
}

}  // namespace

TEST_CASE("power loss at any event of any operation, on persistent memory", "[crash]") {
  hold_everything({.durability = Durability::cache_line, .seed = test::seed()});
}

TEST_CASE("power loss at any event of any operation, on a file system with a page cache",
          "[crash]") {
  hold_everything({.durability = Durability::page, .seed = test::seed()});
}

TEST_CASE("power loss at any event of any operation, with two backends", "[crash]") {
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    hold_everything({.durability = durability, .seed = test::seed(), .rounds = 3, .places = 2});
  }
}

TEST_CASE("power loss at any event of any operation, with containers that are mapped", "[crash]") {
  const Enumeration how{
      .durability = Durability::cache_line, .seed = test::seed(), .rounds = 2, .maps = true};
  for (const auto& scenario : {test::every_operation(), test::every_staging()}) {
    hold(scenario, how);
  }
  bites(test::every_operation(),
        {.durability = Durability::cache_line, .maps = true, .lies = {.deaf = "data sync"}},
        "R1: what was stored into a mapping is not synced");
}

TEST_CASE("death of the processes at any event, and power loss when the next ones are at work",
          "[crash]") {
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    hold_everything({.durability = durability, .seed = test::seed(), .rounds = 2, .killed = true});
  }
}

TEST_CASE("death of the worker at any event, and power loss when its successor is at work",
          "[crash]") {
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    hold_everything({.durability = durability,
                     .seed = test::seed(),
                     .rounds = 2,
                     .killed = true,
                     .takeover = true});
  }
}

TEST_CASE("power loss while a recovery makes a journal of format 3 one of the present format",
          "[crash]") {
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    for (const bool killed : {false, true}) {
      for (const auto& scenario : {test::every_operation(), test::every_staging()}) {
        hold(scenario, {.durability = durability,
                        .seed = test::seed(),
                        .rounds = 3,
                        .smallest_compaction = snapshot_often,
                        .killed = killed,
                        .format_3 = true});
      }
    }
    // R5: the conversion is one switch.
    bites(test::every_operation(),
          {.durability = durability, .format_3 = true, .lies = {.switch_in_two = true}},
          "a conversion in two steps");
  }
}

TEST_CASE("power loss in random sequences", "[crash]") {
  hold_random(1);
}

TEST_CASE("power loss in random sequences, with two backends", "[crash]") {
  hold_random(2);
}

TEST_CASE("what the daemon syncs by itself from time to time is durable then", "[crash]") {
  const auto seed = test::seed();
  auto scenario = test::visible_operations();
  const auto file = std::find_if(scenario.begin(), scenario.end(),
                                 [](const auto& step) { return step.name == "create d"; });
  REQUIRE(file != scenario.end());
  scenario.erase(file + 1, scenario.end());
  for (int second = 1; second <= 5; ++second) {
    scenario.push_back(test::tending(second == 5));
  }
  hold(scenario, {.durability = Durability::page, .seed = seed, .rounds = 16});
  // That sync of the journal is the reason.
  bites(scenario, {.durability = Durability::page, .rounds = 8, .lies = {.deaf = "journal sync"}},
        "the daemon's own sync");
}

TEST_CASE("one fsync of a new file makes its data and its name durable", "[crash]") {
  const auto scenario = test::new_file_with_fsync();
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    for (const unsigned places : {1U, 2U}) {
      hold(scenario,
           {.durability = durability, .seed = test::seed(), .rounds = 16, .places = places});
    }
  }
  for (const char* event : {"data sync", "container name sync", "journal sync"}) {
    bites(scenario, {.durability = Durability::page, .rounds = 16, .lies = {.deaf = event}}, event);
  }
}

namespace {

// Power loss erased the last record of a chunk, but not the first record of the next (the kernel
// chooses the order of writeback). After a recovery, appends one more record, and power fails
// again. Returns how many records are there then.
std::uint64_t records_after_two_losses(Durability durability, std::uint64_t seed,
                                       const test::Lies& lies) {
  test::SimWorld world(durability, seed);
  const auto medium = std::make_shared<test::SimMedium>(world);
  const auto nothing = [](const store::Record&) -> Status {
    return {};
  };
  // Records of 40 bytes, and of 40 times 5000: they fill a chunk to its end, so there is no end
  // mark.
  const std::string small(8, 'r'), large(200'000 - sizeof(store::RecordHeader), 'r');
  const auto record = std::as_bytes(std::span(small));
  std::uint64_t before = 0;
  {
    auto journal = store::Journal::create(medium, "journal").value();
    while (journal.size() < store::journal_chunk) {
      REQUIRE(journal.append(0,
                             journal.size() + 200'000 <= store::journal_chunk
                                 ? std::as_bytes(std::span(large))
                                 : record,
                             0));
    }
    REQUIRE(journal.size() == store::journal_chunk);
    before = journal.sequence() - 1;
    REQUIRE(journal.append(0, record, 0));
  }
  auto& file = *world.files.at("journal");
  world.sync_file(file);
  for (auto* side : {&file.visible, &file.durable}) {
    std::memset(side->at(store::journal_chunk - 40), 0, 40);
  }
  world.crash();
  world.lie(lies);
  {
    auto journal = store::Journal::open(medium, "journal", nothing);
    REQUIRE(journal);
    REQUIRE(journal->sequence() == before);
    REQUIRE(journal->append(0, record, 0));
  }
  world.crash();
  world.lie({});
  const auto left = store::Journal::scan(*medium, "journal", nothing);
  REQUIRE(left);
  return left->sequence - before;
}

}  // namespace

TEST_CASE("what power loss left of a later chunk does not come back behind what is appended",
          "[crash]") {
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    std::uint64_t most = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CHECK(records_after_two_losses(durability, seed, {}) <= 1);
      most = std::max(most, records_after_two_losses(durability, seed, {.deaf = "journal sync"}));
    }
    // here the sync of the cut is necessary; on persistent memory each drain of the simulation has
    // the same effect
    if (durability == Durability::page) {
      CHECK(most > 1);
    }
  }
}

// With one backend and with two: a missing event must show wherever the containers are.
TEST_CASE("the enumeration notices each kind of event that is missing", "[crash][bites]") {
  const auto scenario = test::every_operation();
  for (const unsigned places : {1U, 2U}) {
    bites(scenario,
          {.durability = Durability::cache_line, .places = places, .lies = {.deaf = "drain"}},
          "records are not drained");
    for (const auto durability : {Durability::cache_line, Durability::page}) {
      bites(scenario, {.durability = durability, .places = places, .lies = {.deaf = "data sync"}},
            "R1: data is not synced");
      bites(scenario,
            {.durability = durability, .places = places, .lies = {.deaf = "container name sync"}},
            "R6: a container's creation is not synced");
      bites(scenario,
            {.durability = durability, .places = places, .lies = {.deaf = "all data sync"}},
            "R1: staged data is not synced");
      bites(scenario,
            {.durability = durability,
             .places = places,
             .smallest_compaction = snapshot_often,
             .lies = {.deaf = "names sync"}},
            "R5: the switch is not made durable");
    }
    bites(scenario,
          {.durability = Durability::page, .places = places, .lies = {.deaf = "journal sync"}},
          "records are not synced");
    // On persistent memory the earlier drain has the same effect.
    bites(scenario,
          {.durability = Durability::page,
           .places = places,
           .smallest_compaction = snapshot_often,
           .lies = {.deaf = "journal sync"}},
          "R5: a snapshot is not synced before the switch");
  }
}

TEST_CASE("the enumeration notices each rule that is broken", "[crash][bites]") {
  const auto scenario = test::every_operation();
  for (const unsigned places : {1U, 2U}) {
    for (const auto durability : {Durability::cache_line, Durability::page}) {
      bites(scenario,
            {.durability = durability, .places = places, .rules = {.settle_after_sync = false}},
            "R1");
      hold(test::opened_while_unsettled(),
           {.durability = durability, .seed = test::seed(), .rounds = 16, .places = places});
      bites(test::opened_while_unsettled(),
            {.durability = durability,
             .rounds = 16,
             .places = places,
             .rules = {.sync_before_dirty = false}},
            "R1: what becomes dirty is not synced before");
      bites(test::every_fetch(),
            {.durability = durability,
             .rounds = 16,
             .places = places,
             .rules = {.sync_before_fetched = false}},
            "R1: a content that was fetched is not synced before its record");
      bites(scenario,
            {.durability = durability, .places = places, .rules = {.free_after_reader = false}},
            "R3: a container goes while somebody reads it");
      bites(scenario,
            {.durability = durability, .places = places, .rules = {.free_unknown = false}}, "R4");
      bites(scenario,
            {.durability = durability, .places = places, .rules = {.reserve_numbers = false}},
            "R4: a number is used before a record has reserved it");
      bites(scenario,
            {.durability = durability, .places = places, .rules = {.sync_before_replace = false}},
            "R6");
    }
    bites(
        scenario,
        {.durability = Durability::page, .places = places, .rules = {.free_after_durable = false}},
        "R3");
    bites(test::every_eviction(),
          {.durability = Durability::page,
           .rounds = 16,
           .places = places,
           .rules = {.free_after_durable = false}},
          "R3: a container is emptied before the record of its eviction is durable");
  }
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    bites(test::every_move(),
          {.durability = durability,
           .rounds = 16,
           .places = 2,
           .rules = {.sync_before_moved = false}},
          "R1: a content that moved is not synced before its record");
  }
  bites(test::every_move(),
        {.durability = Durability::page,
         .rounds = 16,
         .places = 2,
         .rules = {.free_after_durable = false}},
        "R3: a container goes before the record of its content's move is durable");
  // The journal has one place.
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    bites(scenario, {.durability = durability, .rules = {.stop_at_damage = false}}, "R2");
    bites(scenario,
          {.durability = durability,
           .smallest_compaction = snapshot_often,
           .lies = {.switch_in_two = true}},
          "R5");
  }
  bites(test::equal_records(),
        {.durability = Durability::page, .rounds = 40, .lies = {.keeps_old = true}},
        "R2: what lies behind the last good record is not cleared");
}

namespace {

// An event that is not missed, with the reason. `step`: the begin of its step's name. `follows`:
// the next events of that step ("answer": a call returns). "": any.
struct Harmless {
  const char* event;
  const char* step;
  const char* follows;
  const char* why;
  unsigned time = 0;  // only in the n-th step of this name
  std::optional<Durability> durability = {};
};

constexpr const char* unsettled =
    "a clean file that is not settled counts as not there after power loss, under any name: the "
    "PFS has it";
constexpr const char* unpromised =
    "no step promises the content of this file, so these tests do not look at it";
constexpr const char* synced_before =
    "it was durable already, and nothing was written since: a file system past which the kernel "
    "writes cannot know that";

const Harmless harmless[] = {
    {"drain", "", " drain",
     "the record of one more change of the same step: its drain waits for these stores, too, and "
     "nothing is answered in between"},
    {"drain", "", " journal sync",
     "what comes before a switch (R5) is drained and synced: on persistent memory either will do",
     0, Durability::cache_line},
    {"journal sync", "", " rename", "the other one of these two", 0, Durability::cache_line},
    {"drain", "drop old", " data sync",
     "the drains of the same step that come behind the sync wait for these stores, too"},
    {"data sync", "drop old", "", unpromised},
    {"container name sync", "drop old", "", unpromised},
    {"journal sync", "drop unsent", "",
     "the records of the drop come behind those of the newer file: without them the older one is "
     "there, too"},
    {"container name sync", "drop unsent", "",
     "a snapshot has synced the names of all containers since the file was made"},
    {"drain", "create in vain", " answer drain answer",
     "the removal follows at once: without the create the name is not there either"},
    {"drain", "O_TMPFILE", " answer data sync",
     "what has no name yet is not there after power loss"},
    {"journal sync", "O_TMPFILE", " answer journal sync", "the same on a page cache"},
    {"drain", "stage in in/", "", unsettled},
    {"drain", "stage in link", "", unsettled},
    {"drain", "stage in several", "", unsettled},
    {"drain", "adopt in/shared", "", unsettled},
    {"drain", "load d/part", "", unsettled},
    {"drain", "load links of d/w", "", unsettled},
    {"drain", "keep d/w2", "", unsettled},
    {"drain", "new connection", "",
     "it is about the kernel's requests: power loss ends all connections"},
    {"drain", "fill pool", "",
     "numbers alone: recovery uses up those of all containers that it finds"},
    {"drain", "look at d/s", "",
     "the time at which a directory was read: another one in each run, so that it is not compared"},
    {"drain", "ACL of d/w", "", "it was born with this ACL"},
    {"container name sync", "fsync d/f", "", synced_before, 2},
    {"container name sync", "fsync d/f", "", synced_before, 3},
    {"container name sync", "fsync in/a", "", synced_before},
    {"container name sync", "fsync in/b", "", synced_before},
    {"data sync", "rename c a", "", synced_before},
    {"container name sync", "rename c a", "", synced_before},
    {"data sync", "fsync a", "", synced_before},
    {"container name sync", "fsync a", "", synced_before},
    {"all data sync", "settle", " all data sync",
     "of two places the first has nothing there that is not synced", 2},
    {"names sync", "create e", "", "the old journal has the last record, too", 0,
     Durability::cache_line},
};

const Harmless* reason_for(const test::Event& event, Durability durability) {
  const auto fits = [&](const Harmless& one) {
    return event.name == one.event && event.step.starts_with(one.step) &&
           event.after.starts_with(one.follows) && (one.time == 0 || one.time == event.time) &&
           one.durability.value_or(durability) == durability;
  };
  const auto* found = std::find_if(std::begin(harmless), std::end(harmless), fits);
  return found == std::end(harmless) ? nullptr : found;
}

// Without a drain, a record may be torn while later ones are durable. A recovery rejects this,
// which says nothing about the missing event.
constexpr const char* refused = "power loss does not explain this";

// EFS_CRASH_EVENTS=all tests each event and the list above; otherwise a part that the seed selects.
bool exhaustive() {
  const char* events = std::getenv("EFS_CRASH_EVENTS");
  return events != nullptr && std::string(events) == "all";
}

// Runs each scenario in each kind of store. With two places, a single file uses one of them, and
// the events of the other have no effect.
void for_each_run(std::uint64_t seed,
                  const std::function<void(const test::Scenario&, const Enumeration&)>& visit) {
  for (const unsigned places : {1U, 2U}) {
    for (const auto durability : {Durability::cache_line, Durability::page}) {
      for (const auto compaction : {std::uint64_t{16u << 20}, snapshot_often}) {
        std::vector<test::Scenario> scenarios{test::visible_operations(), test::every_operation(),
                                              test::every_staging(), test::every_loss()};
        if (places == 1) {
          scenarios.push_back(test::bulky_attributes());
        }
        for (const auto& scenario : scenarios) {
          visit(scenario, {.durability = durability,
                           .seed = seed,
                           .rounds = 60,
                           .places = places,
                           .smallest_compaction = compaction});
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("every single event counts, but for those of which it is said why they do not",
          "[crash][bites]") {
  const auto seed = test::seed();
  std::mt19937_64 random(seed);
  std::set<const Harmless*> needless;
  for_each_run(seed, [&](const test::Scenario& scenario, const Enumeration& how) {
    const auto is_harmless = [&](const test::Event& event) {
      return reason_for(event, how.durability) != nullptr;
    };
    const auto drawn = [&](const test::Event& event) {
      return !is_harmless(event) && (exhaustive() || random() % 6 == 0);
    };
    for (const auto& event : unnoticed(scenario, how, drawn, refused)) {
      INFO("EFS_TEST_SEED=" << seed
                            << (how.durability == Durability::page ? ", page cache"
                                                                   : ", persistent memory")
                            << ", snapshots from " << how.smallest_compaction
                            << " bytes on, places: " << how.places);
      FAIL_CHECK("nobody noticed that " << event.name << " " << event.nth << " of step '"
                                        << event.step << "' (" << event.time
                                        << ") is missing; then come" << event.after);
    }
    if (!exhaustive()) {
      return;
    }
    Enumeration fewer = how;
    fewer.rounds = 4;
    for (const auto& event : unnoticed(scenario, fewer, is_harmless, refused)) {
      needless.insert(reason_for(event, how.durability));
    }
  });
  INFO("EFS_TEST_SEED=" << seed);
  for (const auto& one : harmless) {
    if (exhaustive() && !needless.contains(&one)) {
      FAIL_CHECK("it is noticed, after all: " << one.event << " in '" << one.step
                                              << "': " << one.why);
    }
  }
}

// Only after the death of the processes: after power loss a recovery has nothing to lose, because
// the next recovery would restore the same state.
TEST_CASE("every single event of a recovery counts", "[crash][bites]") {
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    std::map<std::string, std::size_t> noticed;
    const auto add = [&](const test::Scenario& scenario, const Enumeration& how) {
      for (const auto& [event, times] : test::noticed_in_recovery(scenario, how)) {
        noticed[event] += times;
      }
    };
    // from the first start on: an unfinished journal
    add({}, {.durability = durability, .rounds = 40, .killed = true});
    for (std::uint64_t seed = 1; seed <= (exhaustive() ? 8 : 1); ++seed) {
      add(test::every_operation(),
          {.durability = durability, .seed = seed, .rounds = 2, .killed = true});
    }
    for (const auto& [event, times] : noticed) {
      // for the first journal, either event suffices
      const bool either = durability == Durability::cache_line &&
                          (event == "drain" || event == "drain, journal sync");
      INFO(event << (durability == Durability::page ? ", page cache" : ", persistent memory"));
      CHECK((times > 0) == !either);
    }
    CHECK(noticed.contains("names sync"));
    CHECK(noticed.contains("names sync, journal sync"));
  }
}
