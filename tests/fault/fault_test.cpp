// Every call to the store fails once, and then every call from one on: nothing dies, an error is told, and what the file
// system shows is what its journal says.
#include <catch2/catch_test_macros.hpp>
#include <sys/stat.h>

#include "crash/scenarios.hpp"
#include "support/failing_new.hpp"

using namespace efs;

namespace {

struct Fault {
  Durability durability;
  int code = EIO;
  bool on = false;  // once it has begun
  std::uint64_t smallest_compaction = 16u << 20;
};

std::string attributes_text(const struct stat& st) {
  return std::to_string(st.st_ino) + " mode " + std::to_string(st.st_mode) + " links " + std::to_string(st.st_nlink) + " owner " + std::to_string(st.st_uid) + ":" + std::to_string(st.st_gid) + " size " +
         std::to_string(S_ISREG(st.st_mode) ? st.st_size : 0);
}

// All that programs can see, but for times.
void list(fs::Filesystem& filesystem, std::uint64_t directory, const std::string& path, std::string& text) {
  const auto items = filesystem.readdir(directory, 0, 1000).value();
  for (const auto& item : items) {
    if (item.name == "." || item.name == "..") continue;
    const auto entry = filesystem.getattr(item.ino).value();
    text += path + item.name + " " + attributes_text(entry.attributes);
    if (S_ISLNK(entry.attributes.st_mode)) text += " -> " + filesystem.readlink(item.ino).value();
    const auto names = filesystem.listxattr(item.ino).value();
    for (const auto& name : names) {
      const std::string value = filesystem.getxattr(item.ino, name).value();
      text += " " + name + "=" + (value.size() < 40 && !name.starts_with("system.") ? value : std::to_string(std::hash<std::string>()(value)));
    }
    text += "\n";
    if (S_ISDIR(entry.attributes.st_mode)) list(filesystem, item.ino, path + item.name + "/", text);
  }
}

std::string listing(fs::Filesystem& filesystem) {
  std::string text;
  list(filesystem, fs::root_ino, "", text);
  return text;
}

struct Outcome {
  bool met = false;      // the fault was reached
  std::string where;     // the call that failed
  std::string wrong;
};

fs::Filesystem::Options options_of(const Fault& fault, test::SimWorld& world) {
  return {.medium = std::make_shared<test::SimMedium>(world), .root_mode = 0750, .smallest_compaction = fault.smallest_compaction};
}

// What is there once the fault has gone must be what the journal says, and what a start finds.
std::string check(const Fault& fault, test::SimWorld& world, test::SimBackend& backend, std::unique_ptr<fs::Filesystem> filesystem) {
  const std::string seen = listing(*filesystem);
  filesystem.reset();
  auto again = fs::Filesystem::open(backend, options_of(fault, world));
  if (!again) return "it cannot be opened again: " + describe(again.error());
  if (const std::string found = listing(**again); found != seen) return "before:\n" + seen + "after a start:\n" + found;
  if (std::string wrong = test::check_journal(world); !wrong.empty()) return wrong;
  auto made = (*again)->make_node({}, fs::root_ino, "~", S_IFREG | 0600, 0);
  return made ? "" : "it cannot be gone on with: " + describe(made.error());
}

Outcome with_failing_call(const test::Scenario& scenario, const Fault& fault, std::uint64_t n) {
  test::SimWorld world(fault.durability, 1);
  test::SimBackend backend(world);
  auto opened = fs::Filesystem::open(backend, options_of(fault, world));
  REQUIRE(opened);
  test::Life life{world, **opened, {}, 0};
  world.fail_call(n, fault.code, fault.on);
  for (const auto& step : scenario) step.run(life);
  Outcome outcome{.met = world.calls() >= n, .where = world.failed_call(), .wrong = {}};
  world.fail_call(0);
  outcome.wrong = check(fault, world, backend, std::move(*opened));
  return outcome;
}

// As the doors do, each step catches what is thrown.
Outcome with_failing_allocation(const test::Scenario& scenario, const Fault& fault, std::uint64_t n) {
  test::SimWorld world(fault.durability, 1);
  test::SimBackend backend(world);
  auto opened = fs::Filesystem::open(backend, options_of(fault, world));
  REQUIRE(opened);
  test::Life life{world, **opened, {}, 0};
  Outcome outcome;
  {
    const test::FailingNew failing(n);
    for (const auto& step : scenario) {
      try {
        step.run(life);
      } catch (const std::bad_alloc&) {
        outcome.where = step.name;
      }
    }
    outcome.met = failing.met();
  }
  outcome.wrong = check(fault, world, backend, std::move(*opened));
  return outcome;
}

std::vector<test::Scenario> all_scenarios() { return {test::every_operation(), test::every_staging(), test::bulky_attributes()}; }

template <typename Run>
void every_one(Run run, const std::vector<test::Scenario>& scenarios = all_scenarios()) {
  std::uint64_t all = 0;
  for (const auto& scenario : scenarios) {
    std::uint64_t n = 0;
    while (true) {
      const Outcome outcome = run(scenario, ++n);
      INFO("number " << n << ": " << outcome.where);
      CHECK(outcome.wrong == "");
      if (!outcome.met || !outcome.wrong.empty()) break;
    }
    CHECK(n > 2);  // the last one's attributes go to the journal, which asks the store for little
    all += n;
  }
  CHECK(all > 60);
}

constexpr std::uint64_t short_journal = 1500;  // bytes of journal

}  // namespace

TEST_CASE("every call to the store fails once", "[fault]") {
  for (const auto durability : {Durability::volatile_memory, Durability::page, Durability::cache_line})
    for (const int code : {EIO, ENOSPC})
      for (const auto compaction : {std::uint64_t{16u << 20}, short_journal})
        every_one([&](const test::Scenario& scenario, std::uint64_t n) { return with_failing_call(scenario, {.durability = durability, .code = code, .smallest_compaction = compaction}, n); });
}

TEST_CASE("from one call on the store fails for good", "[fault]") {
  for (const auto durability : {Durability::volatile_memory, Durability::page, Durability::cache_line})
    for (const auto compaction : {std::uint64_t{16u << 20}, short_journal})
      every_one([&](const test::Scenario& scenario, std::uint64_t n) { return with_failing_call(scenario, {.durability = durability, .on = true, .smallest_compaction = compaction}, n); });
}

TEST_CASE("every allocation of memory fails once", "[fault]") {
  const auto run = [](Durability durability, std::uint64_t compaction, const std::vector<test::Scenario>& scenarios) {
    every_one([&](const test::Scenario& scenario, std::uint64_t n) { return with_failing_allocation(scenario, {.durability = durability, .smallest_compaction = compaction}, n); }, scenarios);
  };
  // There are a thousand allocations, and each takes a run of the scenario: memory differs little between the classes.
  run(Durability::page, short_journal, all_scenarios());
  run(Durability::page, std::uint64_t{16u << 20}, {test::every_operation()});
  run(Durability::volatile_memory, short_journal, {test::every_operation()});
}

TEST_CASE("a journal that cannot be synced makes the file system read-only, for good", "[fault]") {
  const Fault fault{.durability = Durability::page};
  test::SimWorld world(fault.durability, 1);
  test::SimBackend backend(world);
  auto opened = fs::Filesystem::open(backend, options_of(fault, world));
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
