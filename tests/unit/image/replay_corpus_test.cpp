// SPDX-License-Identifier: BSD-3-Clause
// The saved journals that fuzzing begins with (tests/fuzz/corpus/replay) are of today's format.
// With EFS_MAKE_CORPUS=1 they are made anew, from the journals of the crash tests' scenarios, and
// then checked.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "crash/scenarios.hpp"
#include "fs/filesystem.hpp"
#include "fs/namespace.hpp"
#include "store/journal.hpp"

using namespace efs;

namespace {

const std::string saved_corpus = EFS_SOURCE_DIR "/tests/fuzz/corpus/replay/";

// The journal of a scenario: its bytes, and the payload of each record.
struct LeftJournal {
  std::string bytes;
  std::vector<std::string> payloads;
};

Result<store::ReplayEnd> scan_journal(test::SimWorld& world, const store::Replay& replay) {
  test::SimMedium medium(world);
  return store::Journal::scan(medium, "journal", replay);
}

// Appends the record of a content, which no operation writes: it is of a later level. And that of
// missing events, which only a full store writes.
void add_content(test::SimWorld& world, std::uint64_t ino) {
  auto journal = store::Journal::open(std::make_shared<test::SimMedium>(world), "journal",
                                      [](const store::Record&) -> Status { return {}; });
  REQUIRE(journal);
  std::vector<std::byte> bytes;
  fs::encode(fs::SetContent{.ino = ino,
                            .size = 5000,
                            .physical = 8192,
                            .end = 8192,
                            .extents = {{0, 4096, 4096}, {4096, 65536, 4096}}},
             bytes);
  REQUIRE(journal->append(0, bytes, 0));
  bytes.clear();
  fs::encode(ledger::Missed{50}, bytes);
  REQUIRE(journal->append(0, bytes, 0));
}

LeftJournal left_by(const test::Scenario& scenario, std::uint64_t smallest_compaction,
                    std::size_t places = 1) {
  test::SimWorld world(Durability::page, 1, places);
  const auto backend = test::open_store(world).value();
  auto filesystem =
      fs::Filesystem::open(*backend, {.medium = std::make_shared<test::SimMedium>(world),
                                      .smallest_compaction = smallest_compaction})
          .value();
  test::Life life{world, *filesystem, *backend, {}, 0};
  REQUIRE(filesystem->make_node({.request = 77}, fs::root_ino, "asked", S_IFREG | 0600, 0));
  for (const auto& step : scenario) {
    step.run(life);
  }
  add_content(world, life.find("asked"));
  LeftJournal left;
  const auto end = scan_journal(world, [&](const store::Record& record) -> Status {
    left.payloads.emplace_back(reinterpret_cast<const char*>(record.payload.data()),
                               record.payload.size());
    return {};
  });
  REQUIRE(end);
  left.bytes.assign(reinterpret_cast<const char*>(world.files.at("journal")->visible.at(0)),
                    end->tail);
  return left;
}

// The two input forms of tests/fuzz/replay.cpp: a journal, and payloads from which it makes a
// journal.
void write_saved(const std::string& name, const LeftJournal& left) {
  std::ofstream(saved_corpus + name + ".journal", std::ios::binary) << '\0' << left.bytes;
  std::ofstream file(saved_corpus + name + ".records", std::ios::binary);
  file << '\1';
  for (const auto& payload : left.payloads) {
    if (payload.size() <= 256) {
      file << static_cast<char>(payload.size() - 1) << payload;
    }
  }
}

// The others were found by fuzzing, or written by hand.
bool is_made(const std::filesystem::path& saved) {
  return saved.extension() == ".journal" || saved.extension() == ".records";
}

void make_corpus() {
  for (const auto& old : std::filesystem::directory_iterator(saved_corpus)) {
    if (is_made(old.path())) {
      std::filesystem::remove(old.path());
    }
  }
  write_saved("operations", left_by(test::every_operation(), 1U << 30U));
  write_saved("staging", left_by(test::every_staging(), 1U << 30U));
  write_saved("exports", left_by(test::every_export(), 1U << 30U));
  write_saved("losses", left_by(test::every_loss(), 1U << 30U));
  write_saved("evictions", left_by(test::every_eviction(), 1U << 30U));
  write_saved("moves", left_by(test::every_move(), 1U << 30U, 2));
  write_saved("fetches", left_by(test::every_fetch(), 1U << 30U));
  write_saved("snapshot", left_by(test::every_operation(), 1500));
}

}  // namespace

TEST_CASE("the journals that fuzzing begins with are of the present format, and have every record",
          "[image][corpus]") {
  if (const char* make = std::getenv("EFS_MAKE_CORPUS");
      make != nullptr && std::string(make) == "1") {
    make_corpus();
  }
  std::set<std::size_t> types;
  std::size_t journals = 0;
  for (const auto& saved : std::filesystem::directory_iterator(saved_corpus)) {
    if (!is_made(saved.path())) {
      continue;
    }
    INFO(saved.path().string());
    std::ifstream file(saved.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    REQUIRE(bytes.size() > 100);
    CHECK(bytes.size() <= 32768);  // -max_len of tests/fuzz/fuzz_test.sh
    if (bytes[0] % 2 != 0) {
      continue;
    }
    ++journals;
    test::SimWorld world(Durability::page, 1);
    const auto journal = std::make_shared<test::SimWorld::File>();
    std::memcpy(journal->visible.at(0), bytes.data() + 1, bytes.size() - 1);
    journal->size = 4U << 20U;
    world.files["journal"] = journal;
    fs::Namespace names(0755, 0, 0, 0);
    const auto end = scan_journal(world, [&](const store::Record& stored) -> Status {
      auto record = fs::decode(stored.payload, stored.version, fs::content_level);
      if (!record) {
        return std::unexpected(record.error());
      }
      types.insert(record->value().index());
      return names.apply(record->value());
    });
    REQUIRE(end);
    CHECK(end->tail == bytes.size() - 1);
    CHECK_FALSE(end->torn);
  }
  CHECK(journals >= 3);
  CHECK(types.size() == std::variant_size_v<fs::Record>);
}
