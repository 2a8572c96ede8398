// SPDX-License-Identifier: BSD-3-Clause
// Every call to the store fails once, and then every call from one on, also while the store is
// opened. No process dies, each error is reported correctly, synced data survives power loss,
// nothing leaks, and the file system shows the state of its journal.
#include <sys/stat.h>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <set>

#include "crash/scenarios.hpp"
#include "support/failing_new.hpp"
#include "support/temp.hpp"

using namespace efs;

namespace {

// bytes at which a snapshot is made
constexpr std::uint64_t short_journal = 1500, long_journal = 16u << 20;

struct Fault {
  Durability durability;
  int code = EIO;
  bool on = false;  // all later calls fail too
  std::uint64_t smallest_compaction = long_journal;
  unsigned places = 1;  // places of the store
  bool maps = false;    // containers can be mapped
};

std::string attributes_text(const struct stat& st) {
  return std::to_string(st.st_ino) + " mode " + std::to_string(st.st_mode) + " links " +
         std::to_string(st.st_nlink) + " owner " + std::to_string(st.st_uid) + ":" +
         std::to_string(st.st_gid) + " size " +
         std::to_string(S_ISREG(st.st_mode) ? st.st_size : 0);
}

// Lists all state that programs can see, except times.
void list(fs::Filesystem& filesystem, std::uint64_t directory, const std::string& path,
          std::string& text) {
  const auto items = filesystem.readdir(directory, 0, 1000).value();
  for (const auto& item : items) {
    if (item.name == "." || item.name == "..") {
      continue;
    }
    const auto entry = filesystem.getattr(item.ino).value();
    text += path + item.name + " " + attributes_text(entry.attributes);
    if (S_ISLNK(entry.attributes.st_mode)) {
      text += " -> " + filesystem.readlink(item.ino).value();
    }
    const auto names = filesystem.listxattr(item.ino).value();
    for (const auto& name : names) {
      const std::string value = filesystem.getxattr(item.ino, name).value();
      text += " " + name + "=" +
              (value.size() < 40 && !name.starts_with("system.")
                   ? value
                   : std::to_string(std::hash<std::string>()(value)));
    }
    text += "\n";
    if (S_ISDIR(entry.attributes.st_mode)) {
      list(filesystem, item.ino, path + item.name + "/", text);
    }
  }
}

// The same, and the files that a stage-out would export.
std::string listing(fs::Filesystem& filesystem) {
  std::string text;
  list(filesystem, fs::root_ino, "", text);
  const auto items = fs::Staging(filesystem).walk().value();
  for (const auto& item : items) {
    if (item.pfs.dirty) {
      text += item.path + " is dirty\n";
    }
  }
  return text;
}

// The files that a stage-out names as failed.
std::string incomplete(fs::Filesystem& filesystem) {
  std::string text;
  const auto items = fs::Staging(filesystem).walk().value();
  for (const auto& item : items) {
    text +=
        item.content.unreadable.empty() ? "" : item.path + ": " + item.content.unreadable + "\n";
  }
  return text;
}

struct Outcome {
  bool met = false;       // the fault was reached
  std::string where;      // the step with the fault
  std::string call = {};  // the call that failed
  std::string wrong;
};

// A run without a fault. [k]: after k steps.
struct Reference {
  std::vector<std::string> listings;
  std::vector<std::uint64_t> sequences;  // of the last record
};

fs::Filesystem::Options options_of(const Fault& fault, test::SimWorld& world) {
  return {.medium = std::make_shared<test::SimMedium>(world),
          .root_mode = 0750,
          .smallest_compaction = fault.smallest_compaction,
          .place_of_new = test::place_by_name(fault.places)};
}

test::SimWorld world_of(const Fault& fault, std::uint64_t seed = 1) {
  test::SimWorld world = test::make_world(fault.durability, seed, fault.places);
  world.maps = fault.maps;
  return world;
}

std::uint64_t last_sequence(test::SimWorld& world) {
  test::SimMedium medium(world);
  return store::Journal::scan(medium, "journal", [](const store::Record&) { return Status(); })
      .value()
      .sequence;
}

// Uses two runs: listing directories may change their atimes, by records.
Reference reference_of(const test::Scenario& scenario, const Fault& fault) {
  Reference reference;
  for (const bool lists : {false, true}) {
    test::SimWorld world = world_of(fault);
    const auto store = test::open_store(world).value();
    auto opened = fs::Filesystem::open(*store, options_of(fault, world));
    REQUIRE(opened);
    test::Life life{.world = world, .filesystem = **opened, .backend = *store, .promises = {}};
    const auto note = [&] {
      if (lists) {
        reference.listings.push_back(listing(**opened));
      } else {
        reference.sequences.push_back(last_sequence(world));
      }
    };
    note();
    for (const auto& step : scenario) {
      step.run(life);
      note();
    }
  }
  return reference;
}

// The error must be the injected one, or EROFS if the fault made the file system read-only: one
// step may make several changes, with a snapshot between them.
bool is_honest(int told, int injected) {
  return told == injected || told == EROFS;
}

bool is_told(const test::Life& life, int injected) {
  return std::ranges::any_of(life.errors, [&](int told) { return is_honest(told, injected); });
}

// Checks the step with the fault, after the fault is gone: the step reported the error, or the
// result is as without a fault.
std::string check_answer(test::Life& life, const test::Step& step, const std::string& expected,
                         int injected) {
  if (is_told(life, injected)) {
    return {};
  }
  std::string told;
  for (const int code : life.errors) {
    told += std::string(" ") + std::strerror(code) + ";";
  }
  const std::string found = listing(life.filesystem);
  return found == expected
             ? ""
             : step.name + " was answered with:" + told +
                   " and its effect is not there. Expected:\n" + expected + "found:\n" + found;
}

// After the fault, the visible state must equal the journal's state and that of a new start. At
// most `leaks` containers are without a file, and those whose removal failed: a start would free
// them.
std::string check(const Fault& fault, test::SimWorld& world,
                  std::unique_ptr<fs::Filesystem> filesystem, std::size_t leaks = 0) {
  const std::string seen = listing(*filesystem), lacking = incomplete(*filesystem);
  (void)filesystem->fsync_metadata();  // frees containers that wait for a sync
  const bool failed = filesystem->failed();
  filesystem.reset();
  // Containers of removed files stay until the next start if no sync can confirm the record.
  if (const auto wrong = test::check_journal(world);
      !failed &&
      static_cast<std::size_t>(std::ranges::count(wrong, '\n')) > leaks + world.stuck.size()) {
    return "before a start:\n" + wrong;
  }
  const auto store = test::open_store(world);
  if (!store) {
    return "the store cannot be opened again: " + describe(store.error());
  }
  auto again = fs::Filesystem::open(**store, options_of(fault, world));
  if (!again) {
    return "it cannot be opened again: " + describe(again.error());
  }
  if (const std::string found = listing(**again); found != seen) {
    return "before:\n" + seen + "after a start:\n" + found;
  }
  if (const std::string found = incomplete(**again); !failed && found != lacking) {
    return "incomplete before:\n" + lacking + "after a start:\n" + found;
  }
  if (std::string wrong = test::check_journal(world); !wrong.empty()) {
    return wrong;
  }
  auto made = (*again)->make_node({}, fs::root_ino, "~", S_IFREG | 0600, 0);
  return made ? "" : "it cannot be gone on with: " + describe(made.error());
}

Outcome with_failing_call(const test::Scenario& scenario, const Reference& reference,
                          const Fault& fault, std::uint64_t n) {
  test::SimWorld world = world_of(fault);
  const auto store = test::open_store(world).value();
  auto opened = fs::Filesystem::open(*store, options_of(fault, world));
  REQUIRE(opened);
  test::Life life{.world = world, .filesystem = **opened, .backend = *store, .promises = {}};
  world.fail_call(n, fault.code, fault.on);
  Outcome outcome;
  for (std::size_t k = 0; k < scenario.size(); ++k) {
    life.errors.clear();
    scenario[k].run(life);
    if (outcome.met || world.calls() < n) {
      continue;
    }
    outcome.met = true;
    outcome.where = scenario[k].name;
    outcome.call = world.failed_call();
    if (!fault.on) {
      outcome.wrong = check_answer(life, scenario[k], reference.listings[k + 1], fault.code);
    }
  }
  world.fail_call(0);
  if (outcome.wrong.empty()) {
    outcome.wrong = check(fault, world, std::move(*opened));
  }
  return outcome;
}

// Checks the promises made by an fsync or with a durable record.
std::string check_promises(test::SimWorld& world, fs::Filesystem& recovered, const test::Life& life,
                           const Fault& fault, std::uint64_t low) {
  const std::uint64_t found = recovered.recovery().journal.sequence;
  // a snapshot numbers records anew
  const bool counted = fault.smallest_compaction > short_journal;
  if (counted && found < low) {
    return "record " + std::to_string(low) + " was promised, the last one is " +
           std::to_string(found);
  }
  for (const auto& [ino, promise] : life.promises) {
    if (promise.from_record > (counted ? found : 0) || !recovered.getattr(ino) ||
        recovered.is_remote(ino)) {
      continue;
    }
    const auto data = world.find(ino);
    if (data == nullptr || data->visible != promise.content) {
      return "file " + std::to_string(ino) + " has not the " +
             std::to_string(promise.content.size()) + " bytes that were promised";
    }
  }
  return {};
}

// The power fails right after the step with the fault.
Outcome with_failing_call_and_power_loss(const test::Scenario& scenario, const Reference& reference,
                                         const Fault& fault, std::uint64_t n, std::uint64_t seed) {
  test::SimWorld world = world_of(fault, seed);
  auto store = test::open_store(world).value();
  auto opened = fs::Filesystem::open(*store, options_of(fault, world));
  REQUIRE(opened);
  test::Life life{.world = world, .filesystem = **opened, .backend = *store, .promises = {}};
  world.fail_call(n, fault.code);
  std::uint64_t low = fault.durability == Durability::cache_line ? reference.sequences[0] : 0;
  Outcome outcome;
  for (std::size_t k = 0; k < scenario.size() && !outcome.met; ++k) {
    life.errors.clear();
    life.records_after = reference.sequences[k + 1];
    scenario[k].run(life);
    outcome.met = world.calls() >= n;
    const bool promised =
        scenario[k].syncs || (fault.durability == Durability::cache_line && !outcome.met);
    if (promised && !(outcome.met && is_told(life, fault.code))) {
      low = reference.sequences[k + 1];
    }
    outcome.where = scenario[k].name;
    outcome.call = world.failed_call();
  }
  world.fail_call(0);
  opened->reset();
  world.crash();
  store = test::open_store(world).value();
  auto options = options_of(fault, world);
  options.after_power_loss = true;
  auto recovered = fs::Filesystem::open(*store, options);
  outcome.wrong = recovered ? check_promises(world, **recovered, life, fault, low)
                            : "it cannot be opened again: " + describe(recovered.error());
  return outcome;
}

// Each step catches exceptions, as the entry points do.
Outcome with_failing_allocation(const test::Scenario& scenario, const Reference& reference,
                                const Fault& fault, std::uint64_t n) {
  test::SimWorld world = world_of(fault);
  const auto store = test::open_store(world).value();
  auto opened = fs::Filesystem::open(*store, options_of(fault, world));
  REQUIRE(opened);
  test::Life life{.world = world, .filesystem = **opened, .backend = *store, .promises = {}};
  Outcome outcome;
  {
    const test::FailingNew failing(n);
    for (std::size_t k = 0; k < scenario.size(); ++k) {
      life.errors.clear();
      try {
        scenario[k].run(life);
      } catch (const std::bad_alloc&) {
        life.errors.push_back(ENOMEM);
      }
      if (outcome.met || !failing.met()) {
        continue;
      }
      outcome.met = true;
      outcome.where = scenario[k].name;
      outcome.wrong = check_answer(life, scenario[k], reference.listings[k + 1], ENOMEM);
    }
  }
  // The next start frees a container that could not be queued for lack of memory
  // (Filesystem::reap()), and a container of a step that threw.
  if (outcome.wrong.empty()) {
    outcome.wrong = check(fault, world, std::move(*opened), 1);
  }
  return outcome;
}

std::vector<test::Scenario> all_scenarios() {
  return {test::every_operation(), test::every_staging(),   test::every_export(),
          test::every_loss(),      test::every_fetch(),     test::every_eviction(),
          test::every_move(),      test::bulky_attributes()};
}

// How to open the store of an earlier process.
enum class Way : std::uint8_t { plain, takeover, after_power_loss, read_only };

fs::Filesystem::Options options_of(const Fault& fault, test::SimWorld& world, Way way) {
  auto options = options_of(fault, world);
  options.takeover = way == Way::takeover;
  options.after_power_loss = way == Way::after_power_loss;
  options.read_only = way == Way::read_only;
  return options;
}

// Returns the store that a process leaves after the scenario; the same at each call.
std::unique_ptr<test::SimWorld> left_by(const test::Scenario& scenario, const Fault& fault,
                                        Way way) {
  auto world = std::make_unique<test::SimWorld>(world_of(fault));
  const auto store = test::open_store(*world).value();
  auto opened = fs::Filesystem::open(*store, options_of(fault, *world));
  REQUIRE(opened);
  test::Life life{.world = *world, .filesystem = **opened, .backend = *store, .promises = {}};
  for (const auto& step : scenario) {
    step.run(life);
  }
  // Files that are open without a name, and containers that are not freed yet.
  const auto open = (*opened)->make_node({}, fs::root_ino, "open", S_IFREG | 0600, 0);
  REQUIRE(open);
  REQUIRE((*opened)->unlink({}, fs::root_ino, "open"));
  REQUIRE(fs::Staging(**opened).begin_open_file());
  if (way == Way::after_power_loss) {
    REQUIRE((*opened)->fsync_metadata());
    opened->reset();
    world->crash();
  }
  return world;
}

// Opens without a fault. Except for read_only, the state must be usable.
std::string listing_when_opened(test::SimWorld& world, const Fault& fault, Way way,
                                std::string& wrong) {
  const auto store = test::open_store(world).value();
  auto opened = fs::Filesystem::open(*store, options_of(fault, world, way));
  if (!opened) {
    return wrong = "it cannot be opened again: " + describe(opened.error()), "";
  }
  std::string seen = listing(**opened);
  if (way == Way::read_only) {
    return seen;
  }
  if (way != Way::takeover) {
    wrong = test::check_journal(world);
  }
  const auto made = (*opened)->make_node({}, fs::root_ino, "~", S_IFREG | 0600, 0);
  if (!made) {
    wrong += "it cannot be gone on with: " + describe(made.error());
  } else if (!(*opened)->unlink({}, fs::root_ino, "~")) {
    wrong += "nothing can be removed";
  }
  return seen;
}

// Opens the store while the n-th call or allocation fails, and then again without a fault.
Outcome with_failing_recovery(const test::Scenario& scenario, const Fault& fault, Way way,
                              const std::string& expected, std::uint64_t n) {
  const auto world = left_by(scenario, fault, way);
  Outcome outcome;
  {
    const auto options = options_of(fault, *world, way);
    Result<std::unique_ptr<Backend>> store = fail(ENOMEM);
    Result<std::unique_ptr<fs::Filesystem>> opened = fail(ENOMEM);
    if (fault.code != ENOMEM) {
      world->fail_call(n, fault.code, fault.on);
    }
    try {
      const test::FailingNew failing(fault.code == ENOMEM ? n : 0);
      store = test::open_store(*world);
      if (store) {
        opened = fs::Filesystem::open(**store, options);
      } else {
        opened = std::unexpected(store.error());
      }
      outcome.met = failing.met();
    } catch (const std::bad_alloc&) {
      outcome.met = true;
    }
    outcome.met = outcome.met || !world->failed_call().empty();
    outcome.call = world->failed_call();
    world->fail_call(0);
    if (!opened && !is_honest(opened.error().code, fault.code)) {
      outcome.wrong = "open says: " + describe(opened.error());
    }
    const bool is_told = opened && !(*opened)->recovery().unlisted.empty();
    if (opened && !is_told && listing(**opened) != expected) {
      outcome.wrong = "expected:\n" + expected + "shown, with a fault that nothing told of:\n" +
                      listing(**opened);
    }
  }
  std::string wrong;
  const std::string found = listing_when_opened(*world, fault, way, wrong);
  if (outcome.wrong.empty()) {
    outcome.wrong = wrong;
  }
  if (outcome.wrong.empty() && found != expected) {
    outcome.wrong = "expected:\n" + expected + "after a second start:\n" + found;
  }
  return outcome;
}

void every_recovery(const test::Scenario& scenario, const Fault& fault, Way way) {
  std::string wrong;
  const std::string expected =
      listing_when_opened(*left_by(scenario, fault, way), fault, way, wrong);
  REQUIRE(wrong == "");
  const auto seed = test::seed();
  const test::Sample sample(seed);
  for (std::uint64_t n = 1 + sample.first;; n += sample.step) {
    const Outcome outcome = with_failing_recovery(scenario, fault, way, expected, n);
    INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ", number " << n << ", way "
                       << static_cast<int>(way) << ", code " << fault.code << ": " << outcome.call);
    CHECK(outcome.wrong == "");
    if (outcome.met && outcome.wrong.empty()) {
      continue;
    }
    CHECK(n > 4);
    break;
  }
}

// Returns the names of the calls that failed.
template <typename Run>
std::set<std::string> every_one(Run run, const Fault& fault,
                                const std::vector<test::Scenario>& scenarios = all_scenarios()) {
  const auto seed = test::seed();
  const test::Sample sample(seed);
  std::set<std::string> failed;
  std::uint64_t all = 0;
  for (const auto& scenario : scenarios) {
    const Reference reference = reference_of(scenario, fault);
    std::uint64_t n = 1 + sample.first;
    for (;; n += sample.step) {
      const Outcome outcome = run(scenario, reference, n);
      INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ", number " << n << ": "
                         << outcome.where << ": " << outcome.call);
      CHECK(outcome.wrong == "");
      if (!outcome.met) {
        break;
      }
      failed.insert(outcome.call);
    }
    CHECK(n > 2);  // the attributes of the last place are in the journal, with few calls to the
                   // store
    all += n;
  }
  CHECK(all > 60);
  return failed;
}

// Once, permanently, and followed by power loss. `expected`: calls that must be among the failed
// ones.
void every_call_of(const test::Scenario& scenario, Fault fault,
                   const std::set<std::string>& expected) {
  std::set<std::string> failed;
  for (const bool on : {false, true}) {
    fault.on = on;
    failed.merge(
        every_one([&](const auto& steps, const auto& reference,
                      std::uint64_t n) { return with_failing_call(steps, reference, fault, n); },
                  fault, {scenario}));
  }
  every_one(
      [&](const auto& steps, const auto& reference, std::uint64_t n) {
        return with_failing_call_and_power_loss(steps, reference, fault, n, 1);
      },
      fault, {scenario});
  if (test::Sample(0).step > 1) {
    return;  // tests only a part of the calls
  }
  for (const auto& call : expected) {
    INFO(call);
    CHECK(failed.contains(call));
  }
}

}  // namespace

TEST_CASE("every call to the store fails once", "[fault]") {
  for (const auto durability :
       {Durability::volatile_memory, Durability::page, Durability::cache_line}) {
    for (const int code : {EIO, ENOSPC}) {
      for (const auto compaction : {long_journal, short_journal}) {
        const Fault fault{
            .durability = durability, .code = code, .smallest_compaction = compaction};
        every_one([&](const auto& scenario, const auto& reference,
                      std::uint64_t n) { return with_failing_call(scenario, reference, fault, n); },
                  fault);
      }
    }
  }
}

TEST_CASE("whatever call to the store fails, what was synced survives power loss", "[fault]") {
  for (const auto durability : {Durability::page, Durability::cache_line}) {
    for (const auto compaction : {long_journal, short_journal}) {
      for (const std::uint64_t seed : {1U, 2U}) {
        const Fault fault{.durability = durability, .smallest_compaction = compaction};
        every_one(
            [&](const auto& scenario, const auto& reference, std::uint64_t n) {
              return with_failing_call_and_power_loss(scenario, reference, fault, n, seed);
            },
            fault);
      }
    }
  }
}

TEST_CASE("from one call on the store fails for good", "[fault]") {
  for (const auto durability :
       {Durability::volatile_memory, Durability::page, Durability::cache_line}) {
    for (const auto compaction : {long_journal, short_journal}) {
      const Fault fault{.durability = durability, .on = true, .smallest_compaction = compaction};
      every_one([&](const auto& scenario, const auto& reference,
                    std::uint64_t n) { return with_failing_call(scenario, reference, fault, n); },
                fault);
    }
  }
}

TEST_CASE("every call to a store of two backends fails", "[fault]") {
  for (const auto durability : {Durability::page, Durability::cache_line}) {
    for (const int code : {EIO, ENOSPC}) {
      std::set<std::string> expected{"create", "open", "remove", "data sync", "all data sync"};
      if (code == ENOSPC) {
        expected.insert("admit_writer");
      }
      every_call_of(test::every_operation(), {.durability = durability, .code = code, .places = 2},
                    expected);
      for (const auto way : {Way::plain, Way::takeover, Way::after_power_loss, Way::read_only}) {
        every_recovery(test::every_operation(),
                       {.durability = durability, .code = code, .places = 2}, way);
      }
    }
  }
}

TEST_CASE("every call to a store that maps its containers fails", "[fault]") {
  for (const int code : {EIO, ENOSPC}) {
    every_call_of(test::every_operation(),
                  {.durability = Durability::cache_line, .code = code, .maps = true},
                  {"map", "allocate"});
  }
}

TEST_CASE("every allocation of memory fails once", "[fault]") {
  const auto run = [](Durability durability, std::uint64_t compaction,
                      const std::vector<test::Scenario>& scenarios) {
    const Fault fault{.durability = durability, .smallest_compaction = compaction};
    every_one(
        [&](const auto& scenario, const auto& reference, std::uint64_t n) {
          return with_failing_allocation(scenario, reference, fault, n);
        },
        fault, scenarios);
  };
  // There are a thousand allocations, and each needs a run of the scenario. Memory differs little
  // between the durability classes.
  run(Durability::page, short_journal, all_scenarios());
  run(Durability::page, long_journal, {test::every_operation()});
  run(Durability::volatile_memory, short_journal, {test::every_operation()});
  run(Durability::cache_line, long_journal, {test::every_operation()});
}

TEST_CASE("every call to the store fails once in a recovery, and then for good", "[fault]") {
  for (const auto durability :
       {Durability::volatile_memory, Durability::page, Durability::cache_line}) {
    for (const auto way : {Way::plain, Way::takeover, Way::after_power_loss, Way::read_only}) {
      for (const int code : {EIO, ENOSPC}) {
        for (const bool on : {false, true}) {
          // nothing remains
          if (way == Way::after_power_loss && durability == Durability::volatile_memory) {
            continue;
          }
          for (const auto& scenario : {test::every_operation(), test::every_staging()}) {
            every_recovery(scenario, {.durability = durability, .code = code, .on = on}, way);
          }
        }
      }
    }
  }
}

TEST_CASE("every allocation of memory fails once in a recovery", "[fault]") {
  for (const auto way : {Way::plain, Way::takeover, Way::after_power_loss, Way::read_only}) {
    every_recovery(
        test::every_operation(),
        {.durability = Durability::page, .code = ENOMEM, .smallest_compaction = short_journal},
        way);
  }
}

TEST_CASE("a journal that cannot be synced makes the file system read-only, for good", "[fault]") {
  const Fault fault{.durability = Durability::page};
  test::SimWorld world = world_of(fault);
  const auto store = test::open_store(world).value();
  auto opened = fs::Filesystem::open(*store, options_of(fault, world));
  REQUIRE(opened);
  fs::Filesystem& filesystem = **opened;
  const auto file = filesystem.make_node({}, fs::root_ino, "file", S_IFREG | 0600, 0);
  REQUIRE(file);
  for (std::uint64_t n = 1; world.failed_call() != "journal sync"; ++n) {
    CHECK_FALSE(filesystem.failed());
    world.fail_call(n);
    (void)filesystem.fsync_metadata();
  }
  world.fail_call(0);
  CHECK(filesystem.failed());
  CHECK(filesystem.make_node({}, fs::root_ino, "more", S_IFREG | 0600, 0).error().code == EROFS);
  CHECK_FALSE(filesystem.fsync_metadata());
  CHECK(filesystem.getattr(file->ino));
}

TEST_CASE(
    "a journal that the medium does not append to makes the file system read-only, and want of "
    "anything else does not",
    "[fault]") {
  for (const int code : {EIO, ENOSPC, EDQUOT, ENOMEM, EMFILE}) {
    INFO(std::strerror(code));
    const Fault fault{.durability = Durability::volatile_memory};
    test::SimWorld world = world_of(fault);
    const auto store = test::open_store(world).value();
    auto opened = fs::Filesystem::open(*store, options_of(fault, world));
    REQUIRE(opened);
    fs::Filesystem& filesystem = **opened;
    const auto file = filesystem.make_node({}, fs::root_ino, "file", S_IFREG | 0600, 0);
    REQUIRE(file);
    world.fail_call(1, code);
    Status done;
    while (done) {
      done = filesystem.setxattr({}, file->ino, "user.k", std::string(60'000, 'x'), 0);
    }
    CHECK(done.error().code == code);
    CHECK(world.failed_call() == "journal allocate");
    CHECK(filesystem.failed() == (code == EIO));
    const auto more = filesystem.make_node({}, fs::root_ino, "more", S_IFREG | 0600, 0);
    CHECK((more ? 0 : more.error().code) == (code == EIO ? EROFS : 0));
    CHECK(filesystem.getattr(file->ino));
    CHECK(check(fault, world, std::move(*opened)) == "");
  }
}
