// SPDX-License-Identifier: BSD-3-Clause
// A start that moves the events of meta/placed to the journal dies at each of its events.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/ledger_log.hpp"
#include "fs/placed_file.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"
#include "support/temp.hpp"

namespace efs::conversion_test {
namespace {

using fs::Filesystem;
using ledger::Exported;
using ledger::WhoseCopy;
using test::SimWorld;

constexpr ledger::Name first{.name = 1, .own = 1}, second{.name = 2, .own = 2};

constexpr ledger::File file_with(std::uint64_t inode) {
  return {.version = {.device = 1, .inode = inode, .size = 3, .mtime = 4, .ctime = 5}};
}

Status note(ledger::Log& log, const ledger::Event& event) {
  return log.append([&](const ledger::Ledger&) { return std::vector{event}; }, 5);
}

// The bytes of the file that a salvage has left: both names have new versions.
std::string left_by_a_salvage() {
  const test::TempDirectory directory("/dev/shm");
  const UniqueFd metadata = directory.open();
  const auto file = fs::PlacedFile::open(metadata.get());
  REQUIRE(file);
  REQUIRE(note(**file, Exported{.at = first, .file = file_with(8)}));
  REQUIRE(note(**file, Exported{.at = second, .file = file_with(9)}));
  std::ifstream bytes(directory.path() + "/" + fs::placed_name, std::ios::binary);
  return {std::istreambuf_iterator(bytes), {}};
}

void put(SimWorld& world, const std::string& name, const std::string& bytes) {
  const auto file = std::make_shared<SimWorld::File>();
  std::memcpy(file->visible.at(0), bytes.data(), bytes.size());
  std::memcpy(file->durable.at(0), bytes.data(), bytes.size());
  file->size = file->durable_size = bytes.size();
  for (std::uint64_t line = 0; line * 64 < bytes.size(); ++line) {
    file->touched.insert(line);
  }
  world.files[name] = world.durable_files[name] = file;
}

Result<std::unique_ptr<Filesystem>> open_on(SimWorld& world, Backend& backend,
                                            bool after_power_loss) {
  return Filesystem::open(backend, {.medium = std::make_shared<test::SimMedium>(world),
                                    .after_power_loss = after_power_loss});
}

WhoseCopy whose(Filesystem& filesystem, const ledger::Name& name, std::uint64_t inode) {
  auto found = WhoseCopy::unknown;
  fs::LedgerLog(filesystem).read([&](const ledger::Ledger& known) {
    found = known.whose(name, file_with(inode), ledger::Ctime::counts);
  });
  return found;
}

// Leaves a journal in which the first name has an older version, and a later file of a salvage.
void prepare(SimWorld& world, Backend& backend, const std::string& left) {
  {
    const auto filesystem = open_on(world, backend, false);
    REQUIRE(filesystem);
    fs::LedgerLog log(**filesystem);
    REQUIRE(note(log, Exported{.at = first, .file = file_with(7)}));
    REQUIRE(log.sync());
  }
  put(world, fs::placed_name, left);
}

struct Machine {
  Durability durability;
  bool killed;  // the process dies, and the machine goes on
  std::uint64_t seed;
};

// Returns true if the start has ended before event number `end`.
bool starts_before(const Machine& how, std::uint64_t end, const std::string& left) {
  CAPTURE(end);
  SimWorld world = test::make_world(how.durability, how.seed, 1);
  const auto backend = std::move(*test::open_store(world));
  prepare(world, *backend, left);
  world.end_before(world.events() + end);
  bool ended = false;
  try {
    ended = open_on(world, *backend, false).has_value();
  } catch (const test::PowerLoss&) {
  }
  if (how.killed) {
    world.go_on();
  } else {
    world.crash();
  }
  const auto again = open_on(world, *backend, !how.killed);
  REQUIRE(again);
  CHECK(whose(**again, first, 8) == WhoseCopy::ours);
  CHECK(whose(**again, first, 7) == WhoseCopy::theirs);
  CHECK(whose(**again, second, 9) == WhoseCopy::ours);
  CHECK_FALSE(world.files.contains(fs::placed_name));
  return ended;
}

}  // namespace

TEST_CASE("the exports of a salvage survive a start that dies at any event", "[crash][ledger]") {
  const std::string left = left_by_a_salvage();
  for (const auto durability : {Durability::page, Durability::cache_line}) {
    for (const bool killed : {false, true}) {
      for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        std::uint64_t end = 1;
        CAPTURE(static_cast<int>(durability), killed, seed);
        while (!starts_before({durability, killed, seed}, end, left)) {
          ++end;
        }
        CHECK(end > 4);  // records, their sync, the removal
      }
    }
  }
}

}  // namespace efs::conversion_test
