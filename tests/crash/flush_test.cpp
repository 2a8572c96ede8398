// SPDX-License-Identifier: BSD-3-Clause
// Flushes proved: the scenarios of the crash enumeration run on the real medium and the real
// containers, on persistent memory, and flush_proof.hpp checks every store, flush, drain and sync.
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <span>

#include "crash/flush_proof.hpp"
#include "crash/scenarios.hpp"
#include "support/containers.hpp"
#include "support/temp.hpp"
#include "support/twin_backend.hpp"

using namespace efs;
using test::FlushFault;
using test::FlushProof;

namespace {

constexpr std::uint64_t never = 1U << 30;
constexpr std::uint64_t snapshot_often = 1500;  // bytes of journal

struct Run {
  std::size_t places = 1;
  std::uint64_t smallest_compaction = never;
  FlushFault fault{};
  std::uint64_t crash_before = 0;  // number of a drain; 0: no power loss
};

bool every_one() {
  const char* events = std::getenv("EFS_CRASH_EVENTS");
  return events != nullptr && std::string(events) == "all";
}

struct Outcome {
  std::string violations;
  FlushProof::Counts counts;
  bool healed = true;
};

std::unique_ptr<Backend> open_twins(test::SimWorld& world, const std::string& directory) {
  const auto twin = [&](std::size_t place, const std::string& path) {
    ::mkdir(path.c_str(), 0700);
    return std::make_unique<test::TwinBackend>(test::open_containers(path), world, place,
                                               path + "/data");
  };
  if (world.places.size() == 1) {
    return twin(0, directory);
  }
  VirtualDeviceOptions options{.members = {}, .new_containers = 0, .spill = true};
  for (std::size_t place = 0; place < world.places.size(); ++place) {
    const std::string name = std::to_string(place);
    options.members.push_back({.id = name, .backend = twin(place, directory + "/" + name)});
  }
  return make_virtual_device(std::move(options)).value();
}

using Promises = std::map<std::uint64_t, test::Promise>;

// Opens what power loss left. The records that were answered are there, and the promised contents.
std::string recover(const std::string& directory, std::size_t places, std::uint64_t record,
                    const Promises& promises) {
  test::SimWorld world = test::make_world(Durability::cache_line, 1, places);
  ::mkdir((directory + "/meta").c_str(), 0700);
  for (std::size_t place = 0; place < places && places > 1; ++place) {
    ::mkdir((directory + "/" + std::to_string(place)).c_str(), 0700);
  }
  const auto backend = open_twins(world, directory);
  const UniqueFd metadata(
      ::open((directory + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto filesystem = fs::Filesystem::open(
      *backend, {.metadata_directory = metadata.get(), .after_power_loss = true});
  if (!filesystem) {
    return "the recovery: " + describe(filesystem.error()) + "\n";
  }
  const std::uint64_t last = (*filesystem)->recovery().journal.sequence;
  std::string wrong;
  if (last < record) {
    wrong += "the recovery has records up to " + std::to_string(last) + " of " +
             std::to_string(record) + "\n";
  }
  for (const auto& [ino, promise] : promises) {
    const auto now = (*filesystem)->getattr(ino);
    std::string content(promise.content.size() + 1, '\0');
    const auto bytes = now ? (*filesystem)->read(ino, std::as_writable_bytes(std::span(content)), 0)
                           : Result<std::size_t>(std::unexpected(now.error()));
    content.resize(bytes.value_or(0));
    if (bytes && content != promise.content) {
      wrong += "after the recovery file " + std::to_string(ino) + " has another content\n";
    }
  }
  return wrong;
}

// The promises that apply before the step, during it and after it.
Promises lasting(const Promises& before, const Promises& after) {
  Promises both;
  for (const auto& [ino, promise] : before) {
    const auto same = after.find(ino);
    if (same != after.end() && same->second.content == promise.content) {
      both[ino] = promise;
    }
  }
  return both;
}

// Runs the scenario up to its end, to the first violation, or to the power loss.
Outcome run(const test::Scenario& scenario, const Run& how) {
  const test::PersistentMemory memory(true);
  const test::TempDirectory temp, image;
  const std::string directory = std::filesystem::canonical(temp.path());
  auto world = test::make_world(Durability::cache_line, 1, how.places);
  FlushProof proof(directory, how.fault);
  proof.keep_image(how.crash_before, image.path(), how.crash_before);
  const auto backend = open_twins(world, directory);
  if (backend->durability() != Durability::cache_line) {
    SKIP(directory << " is no place for this test: " << backend->description());
  }
  ::mkdir((directory + "/meta").c_str(), 0700);
  const UniqueFd metadata(
      ::open((directory + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto filesystem =
      fs::Filesystem::open(*backend, {.metadata_directory = metadata.get(),
                                      .smallest_compaction = how.smallest_compaction,
                                      .place_of_new = test::place_by_name(how.places)});
  REQUIRE(filesystem);
  test::Life life{world, **filesystem, *backend, {}, 0};
  life.on_answer = [&] {
    proof.answered();
  };
  for (const auto& step : scenario) {
    const Promises before = life.promises;
    proof.operation(step.name);
    step.run(life);
    if (const auto record = proof.image_record()) {
      proof.stop();
      auto wrong = recover(image.path(), how.places, *record, lasting(before, life.promises));
      return {wrong.empty() ? "" : step.name + ": " + wrong, proof.counts()};
    }
    proof.answered();
    proof.compare(&step == &scenario.back());
    for (const auto& [ino, promise] : life.promises) {
      proof.promised(ino, promise.content);
    }
    if (!proof.violations().empty()) {
      break;
    }
  }
  return {proof.violations() + life.wrong, proof.counts(), proof.is_healed()};
}

FlushProof::Counts holds(const test::Scenario& scenario, const Run& how) {
  const auto outcome = run(scenario, how);
  INFO("places: " << how.places << ", snapshots above " << how.smallest_compaction << " bytes");
  CHECK(outcome.violations == "");
  return outcome.counts;
}

struct Bites {
  std::uint64_t tried = 0, found = 0, healed = 0;
  std::string missed;  // the numbers of the others

  std::string text() const {
    return std::to_string(found) + " of " + std::to_string(tried) + " found, " +
           std::to_string(healed) + " repaired by later calls, missed: " + missed;
  }
};

// Removes calls of this kind, one at a time: a few, which the seed selects; EFS_CRASH_EVENTS=all:
// each.
Bites bite(const test::Scenario& scenario, Run how) {
  how.fault.nth = 0;
  const std::uint64_t points = run(scenario, how).counts.fault_points;
  const std::uint64_t step = every_one() ? 1 : std::max<std::uint64_t>(points / 4, 1);
  Bites bites;
  for (std::uint64_t nth = 1 + test::seed() % step; nth <= points; nth += step) {
    how.fault.nth = nth;
    const auto outcome = run(scenario, how);
    ++bites.tried;
    if (!outcome.violations.empty()) {
      ++bites.found;
    } else if (outcome.healed) {
      ++bites.healed;
    } else {
      bites.missed += std::to_string(nth) + " ";
    }
  }
  return bites;
}

}  // namespace

TEST_CASE("every byte that a record makes reachable was flushed and drained before",
          "[crash][flush]") {
  FlushProof::Counts sum;
  for (const auto& scenario : {test::every_operation(), test::every_staging(), test::every_export(),
                               test::every_loss(), test::every_fetch(), test::every_eviction(),
                               test::every_move(), test::bulky_attributes()}) {
    for (const std::size_t places : {std::size_t{1}, std::size_t{2}}) {
      for (const auto compaction : {never, snapshot_often}) {
        const auto counts = holds(scenario, {.places = places, .smallest_compaction = compaction});
        sum.records += counts.records;
        sum.journal_stores += counts.journal_stores;
        sum.container_stores += counts.container_stores;
        sum.reachable += counts.reachable;
        sum.promises += counts.promises;
      }
    }
  }
  UNSCOPED_INFO(sum.records << " records, " << sum.journal_stores << " + " << sum.container_stores
                            << " stores, " << sum.reachable << " containers made reachable, "
                            << sum.promises << " promises");
  CHECK(sum.records > 1000);
  CHECK(sum.journal_stores > 2 * sum.records);
  CHECK(sum.container_stores > 50);
  CHECK(sum.reachable > 100);
  CHECK(sum.promises > 1000);
}

TEST_CASE("the same after random operations", "[crash][flush]") {
  auto seed = test::seed();
  const char* long_run = std::getenv("EFS_CRASH_SEQUENCES");
  const int sequences = long_run != nullptr ? std::atoi(long_run) : 8;
  for (int i = 0; i < sequences; ++i, ++seed) {
    INFO("EFS_TEST_SEED=" << seed);
    const auto counts = holds(test::random_operations(seed, 80),
                              {.places = i % 4 < 2 ? std::size_t{1} : std::size_t{2},
                               .smallest_compaction = i % 2 == 0 ? snapshot_often : never});
    CHECK(counts.records > 0);
  }
}

TEST_CASE("the same in a journal of several chunks", "[crash][flush]") {
  const auto bulky = [](std::size_t nth) {
    return test::Step{"setxattr", [=](test::Life& life) {
                        const std::string value(60'000, static_cast<char>('a' + nth % 26));
                        life.note(life.filesystem.setxattr({}, fs::root_ino, "user.k", value, 0));
                      }};
  };
  test::Scenario scenario;
  while (scenario.size() < 150) {
    scenario.push_back(bulky(scenario.size()));
  }
  const auto counts = holds(scenario, {});
  CHECK(counts.records >= scenario.size());
}

TEST_CASE("power loss before a drain: the real code recovers what was answered", "[crash][flush]") {
  const bool all = every_one();
  for (const auto& scenario :
       {test::every_operation(), test::every_staging(), test::every_fetch(), test::every_move()}) {
    for (const auto compaction : {never, snapshot_often}) {
      Run how{.places = compaction == never ? std::size_t{2} : std::size_t{1},
              .smallest_compaction = compaction};
      const std::uint64_t drains = run(scenario, how).counts.drains;
      const std::uint64_t step = all ? 1 : std::max<std::uint64_t>(drains / 2, 1);
      for (how.crash_before = 1 + test::seed() % step; how.crash_before <= drains;
           how.crash_before += step) {
        INFO("before drain " << how.crash_before << " of " << drains);
        CHECK(run(scenario, how).violations == "");
      }
    }
  }
}

TEST_CASE("the proof notices each flush and drain of the journal that is missing",
          "[crash][bites][flush]") {
  for (const auto kind : {FlushFault::Kind::flush, FlushFault::Kind::drain, FlushFault::Kind::order,
                          FlushFault::Kind::bypass}) {
    const auto bites = bite(test::every_operation(), {.fault = {kind, "/meta/journal"}});
    INFO("kind " << static_cast<int>(kind) << ": " << bites.text());
    CHECK(bites.missed == "");
    CHECK(bites.found > bites.tried / 2);
  }
}

TEST_CASE("the proof notices each flush and drain of a container that is missing",
          "[crash][bites][flush]") {
  for (const auto kind : {FlushFault::Kind::flush, FlushFault::Kind::drain, FlushFault::Kind::order,
                          FlushFault::Kind::bypass}) {
    const auto bites = bite(test::new_file_with_fsync(), {.fault = {kind, "/data/"}});
    INFO("kind " << static_cast<int>(kind) << ": " << bites.text());
    CHECK(bites.missed == "");
    CHECK(bites.found > 0);
    const auto others = bite(test::every_operation(), {.fault = {kind, "/data/"}});
    INFO("kind " << static_cast<int>(kind) << ", every operation: " << others.text());
    CHECK(others.found > 0);
  }
}
