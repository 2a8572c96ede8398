// SPDX-License-Identifier: BSD-3-Clause
// Snapshots after a shortage of descriptors or room. Runs on a real directory; a wrapping medium
// simulates the shortages.
#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "backends/fsdax.hpp"
#include "fs/filesystem.hpp"
#include "fs/ledger_log.hpp"
#include "fs/staging.hpp"
#include "store/format.hpp"
#include "support/scarce_medium.hpp"
#include "support/temp.hpp"

using namespace efs;
using fs::Filesystem;

namespace {

constexpr int too_many = 10000;  // changes of 32 KiB: more than any of these journals may take

struct CompactionScene {
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata;
  test::Scarcity shortage;
  std::unique_ptr<efs::Backend> backend;
  std::unique_ptr<Filesystem> filesystem;
  std::uint64_t ino = 0;

  CompactionScene() {
    for (const char* part : {"/data", "/meta"}) {
      ::mkdir((directory.path() + part).c_str(), 0700);
    }
    metadata.reset(
        ::open((directory.path() + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    FsdaxOptions store;
    store.directory.reset(
        ::open((directory.path() + "/data").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    backend = std::move(*make_fsdax(std::move(store)));
    open();
    ino = filesystem->make_node({}, fs::root_ino, "f", S_IFREG | 0644, 0)->ino;
  }

  void open() {
    filesystem.reset();
    auto opened =
        Filesystem::open(*backend, {.medium = std::make_shared<test::ScarceMedium>(
                                        store::directory_medium(metadata.get()), shortage),
                                    .smallest_compaction = store::journal_chunk});
    REQUIRE(opened);
    filesystem = std::move(*opened);
  }

  /// The store has no room for a record, nor for a snapshot.
  void fill() {
    shortage.descriptors = true;
    shortage.room = 3 * store::journal_chunk;
    Status done;
    for (int i = 0; i < too_many && done; ++i) {
      done = change();
    }
    REQUIRE_FALSE(done);
    for (int i = 0; i < too_many && filesystem->setxattr({}, ino, "user.y", "small", 0); ++i) {
    }
  }

  /// An event of a file whose ctime is `at`.
  Status note_export(Nanoseconds at) {
    const auto number = static_cast<std::uint64_t>(at);
    const ledger::Exported event{
        .at = {.name = number, .own = 1},
        .file = {.version = {.inode = number, .size = 1, .mtime = 1, .ctime = at}}};
    return fs::LedgerLog(*filesystem)
        .append([&](const auto&) { return std::vector<ledger::Event>{event}; }, at);
  }

  /// Fills the store, and the room for events. Returns the number of the first one that failed.
  Nanoseconds fill_with_exports(Nanoseconds first) {
    fill();
    Nanoseconds at = first;
    while (note_export(at)) {
      ++at;
      REQUIRE(at < first + 100'000);
    }
    return at;
  }

  ledger::WhoseCopy whose(Nanoseconds at) {
    auto whose = ledger::WhoseCopy::unknown;
    const auto number = static_cast<std::uint64_t>(at);
    fs::LedgerLog(*filesystem).read([&](const ledger::Ledger& known) {
      whose = known.whose({.name = number, .own = 1},
                          {.version = {.inode = number, .size = 1, .mtime = 1, .ctime = at}},
                          ledger::Ctime::counts);
    });
    return whose;
  }

  /// Appends a record of 32 KiB that replaces the previous one: a snapshot has only one of them.
  Status change() {
    return filesystem->setxattr(
        {}, ino, "user.x", std::string(32U << 10U, static_cast<char>('a' + changes++ % 26)), 0);
  }

  /// Small changes until a snapshot comes by itself.
  void change_until_snapshot() {
    std::uint64_t before = 0;
    for (int i = 0; journal() >= before; ++i) {
      before = journal();
      REQUIRE((i < 1'000'000 && filesystem->setxattr({}, ino, "user.y", std::to_string(i), 0)));
    }
  }

  std::uint64_t journal() const { return *shortage.sizes.at("journal"); }

  int changes = 0;
};

}  // namespace

TEST_CASE(
    "a journal that grew while descriptors were missing is replaced soon after there are some "
    "again",
    "[fs]") {
  // Uses different lengths, so that each shortage ends at another moment between two attempts.
  for (std::uint64_t chunks = 4; chunks <= 20; ++chunks) {
    CAPTURE(chunks);
    CompactionScene scene;
    scene.shortage.descriptors = true;
    for (int i = 0; scene.journal() < chunks * store::journal_chunk; ++i) {
      REQUIRE((i < too_many && scene.change()));
    }
    scene.shortage.descriptors = false;
    const auto grown = scene.journal();
    for (int i = 0;
         scene.journal() >= grown && scene.journal() <= grown + grown / 4 + store::journal_chunk;
         ++i) {
      REQUIRE((i < too_many && scene.change()));
    }
    CHECK(scene.journal() < grown);
  }
}

TEST_CASE("a store that is full of a journal takes changes again when there is room for a snapshot",
          "[fs]") {
  CompactionScene scene;
  scene.shortage.descriptors = true;
  scene.shortage.room = 8 * store::journal_chunk;
  Status done;
  for (int i = 0; i < too_many && done; ++i) {
    done = scene.change();
  }
  REQUIRE_FALSE(done);
  REQUIRE(done.error().code == ENOSPC);
  scene.shortage.descriptors = false;
  // The snapshot also lacks room.
  for (int i = 0; i < 300; ++i) {
    REQUIRE(scene.change().error().code == ENOSPC);
  }
  scene.shortage.room += store::journal_chunk;
  REQUIRE(scene.change());
  CHECK(scene.journal() < 3 * store::journal_chunk);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(scene.change());
  }
}

TEST_CASE("a file that is begun anew on a full store, again and again, leaves removals their room",
          "[fs][recovery]") {
  CompactionScene scene;
  const auto is_incomplete = [&] {
    return fs::Staging(*scene.filesystem).find("f")->content.unreadable.contains("lacks some");
  };
  scene.fill();
  for (int i = 0; i < 5000; ++i) {
    REQUIRE(scene.filesystem->record_lost_write(scene.ino));
    REQUIRE(is_incomplete());
    REQUIRE(scene.filesystem->setattr({}, scene.ino, {.size = 0}));
    REQUIRE_FALSE(is_incomplete());
  }
  CHECK_FALSE(scene.filesystem->failed());
  SECTION("the last loss is known") {
    CHECK(scene.filesystem->record_lost_write(scene.ino));
    scene.open();
    CHECK(is_incomplete());
  }
  SECTION("a snapshot has no mark of a whole file") {
    scene.shortage.descriptors = false;
    scene.shortage.room = UINT64_MAX;
    scene.change_until_snapshot();
    scene.open();
    CHECK_FALSE(is_incomplete());
  }
  CHECK(scene.filesystem->unlink({}, fs::root_ino, "f"));
}

TEST_CASE("ledger: events of a full store use the room for them; later ones are known as missing",
          "[fs][ledger]") {
  CompactionScene scene;
  fs::LedgerLog(*scene.filesystem).reserve_room();
  const Nanoseconds noted = scene.fill_with_exports(10);
  CHECK(noted > 2000);  // 256 KiB
  CHECK_FALSE(scene.note_export(noted + 1));
  CHECK(scene.whose(noted + 1) == ledger::WhoseCopy::ours);  // this process knows them
  SECTION("to the next process") {
    scene.open();
    CHECK(scene.whose(10) == ledger::WhoseCopy::ours);
    CHECK(scene.whose(noted - 1) == ledger::WhoseCopy::ours);
    CHECK(scene.whose(noted) == ledger::WhoseCopy::unsure);
    CHECK(scene.whose(noted + 1) == ledger::WhoseCopy::unsure);
    CHECK(scene.whose(9) == ledger::WhoseCopy::unknown);
  }
  SECTION("unless there was room later") {
    scene.shortage.descriptors = false;
    scene.shortage.room = UINT64_MAX;
    REQUIRE(fs::LedgerLog(*scene.filesystem).sync());
    scene.open();
    CHECK(scene.whose(noted + 1) == ledger::WhoseCopy::ours);
    CHECK(scene.whose(noted + 2) == ledger::WhoseCopy::unknown);
  }
  SECTION("and removals still have their room") {
    CHECK(scene.filesystem->unlink({}, fs::root_ino, "f"));
  }
}

TEST_CASE("ledger: events that fail after a snapshot are known as missing, too", "[fs][ledger]") {
  CompactionScene scene;
  fs::LedgerLog(*scene.filesystem).reserve_room();
  const Nanoseconds noted = scene.fill_with_exports(10);
  scene.shortage.descriptors = false;
  scene.shortage.room += 32 * store::journal_chunk;
  scene.change_until_snapshot();
  SECTION("the room for events is there again") {
    scene.fill();
    for (Nanoseconds at = noted + 1; at < noted + 2000; ++at) {
      REQUIRE(scene.note_export(at));
    }
  }
  SECTION("when that is used up") {
    const Nanoseconds later = scene.fill_with_exports(noted + 1);
    scene.open();
    CHECK(scene.whose(noted) == ledger::WhoseCopy::ours);
    CHECK(scene.whose(later - 1) == ledger::WhoseCopy::ours);
    CHECK(scene.whose(later) == ledger::WhoseCopy::unsure);
  }
}

TEST_CASE("ledger: a snapshot keeps the room for events", "[fs][ledger]") {
  CompactionScene scene;
  fs::LedgerLog(*scene.filesystem).reserve_room();
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(scene.change());  // the journal is compacted several times
  }
  REQUIRE(scene.journal() <= 3 * store::journal_chunk);
  scene.fill();
  for (Nanoseconds at = 10; at < 2000; ++at) {
    REQUIRE(scene.note_export(at));
  }
}
