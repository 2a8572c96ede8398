// SPDX-License-Identifier: BSD-3-Clause
// The ledger of a store: its events in the journal, and those that a salvage or an older efs left
// in meta/placed.
#include "fs/ledger_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fs/placed_file.hpp"
#include "support/live_buffer.hpp"

using namespace efs;
using ledger::WhoseCopy;
using test::LiveBuffer;

namespace {

constexpr ledger::Name the_name{.name = 1, .own = 10};

constexpr ledger::File version_with(std::uint64_t inode) {
  return {.version = {.device = 1, .inode = inode, .size = 3, .mtime = 4, .ctime = 5}};
}

Status note_event(ledger::Log& log, const ledger::Event& event) {
  return log.append([&](const ledger::Ledger&) { return std::vector{event}; }, 5);
}

struct LedgerScene : LiveBuffer {
  std::string file() const { return directory.path() + "/" + fs::placed_name; }

  fs::LedgerLog log() const { return fs::LedgerLog(*filesystem); }

  WhoseCopy whose(std::uint64_t inode, const ledger::Log* of = nullptr) const {
    auto found = WhoseCopy::unknown;
    const auto own = log();
    (of == nullptr ? own : *of).read([&](const ledger::Ledger& known) {
      found = known.whose(the_name, version_with(inode), ledger::Ctime::counts);
    });
    return found;
  }

  std::unique_ptr<fs::PlacedFile> salvage() const {
    auto opened = std::unique_ptr<fs::PlacedFile>();
    log().read([&](const ledger::Ledger& known) {
      opened = std::move(*fs::PlacedFile::open(metadata.get(), known));
    });
    return opened;
  }

  void open_for_reading() {
    staging.reset();
    filesystem.reset();
    filesystem = std::move(
        *fs::Filesystem::open(*backend, {.metadata_directory = metadata.get(), .read_only = true}));
  }
};

}  // namespace

TEST_CASE("ledger: what was noted is known to the next process, also by a snapshot",
          "[fs][ledger][placed]") {
  LedgerScene scene;
  auto log = scene.log();
  REQUIRE(note_event(log, ledger::Exported{.at = the_name, .file = version_with(7)}));
  for (int process = 0; process < 3; ++process) {
    scene.open();
    CHECK(scene.whose(7) == WhoseCopy::ours);
    CHECK(scene.whose(8) == WhoseCopy::theirs);
    REQUIRE(scene.log().sync());
    if (process == 1) {  // the next recovery writes a snapshot
      REQUIRE(::mknodat(scene.metadata.get(), "sync-failed", S_IFREG | 0600, 0) == 0);
    }
  }
}

TEST_CASE("ledger: a store that is opened for reading takes no event, but the process knows it",
          "[fs][ledger][placed]") {
  LedgerScene scene;
  auto first = scene.log();
  REQUIRE(note_event(first, ledger::Exported{.at = the_name, .file = version_with(7)}));
  scene.open_for_reading();
  auto log = scene.log();
  CHECK(note_event(log, ledger::Exported{.at = the_name, .file = version_with(8)}).error().code ==
        EROFS);
  CHECK(scene.whose(8) == WhoseCopy::ours);
}

TEST_CASE("ledger: after a failed sync files without a record are of unknown origin",
          "[fs][ledger][placed]") {
  LedgerScene scene;
  CHECK(scene.whose(7) == WhoseCopy::unknown);
  REQUIRE(::mknodat(scene.metadata.get(), "sync-failed", S_IFREG | 0600, 0) == 0);
  SECTION("to a start") {
    scene.open();
  }
  SECTION("to a salvage") {
    scene.open_for_reading();
  }
  CHECK(scene.whose(7) == WhoseCopy::unsure);
}

TEST_CASE("ledger: a start puts the events of a salvage in the journal", "[fs][ledger][placed]") {
  LedgerScene scene;
  {
    auto log = scene.log();
    REQUIRE(note_event(log, ledger::Exported{.at = the_name, .file = version_with(7)}));
  }
  scene.open_for_reading();
  {
    const auto salvage = scene.salvage();
    CHECK(scene.whose(7, salvage.get()) == WhoseCopy::ours);
    REQUIRE(note_event(*salvage, ledger::Exported{.at = the_name, .file = version_with(8)}));
    CHECK(scene.whose(8, salvage.get()) == WhoseCopy::ours);
  }
  const std::string copy = scene.file() + ".copy";
  std::filesystem::copy_file(scene.file(), copy);
  CHECK(scene.whose(8, scene.salvage().get()) == WhoseCopy::ours);  // another salvage
  scene.open();
  CHECK(scene.whose(8) == WhoseCopy::ours);
  CHECK(scene.whose(7) == WhoseCopy::theirs);
  CHECK_FALSE(std::filesystem::exists(scene.file()));
  SECTION("once more after a death before the file was removed") {
    std::filesystem::rename(copy, scene.file());
    scene.open();
    CHECK(scene.whose(8) == WhoseCopy::ours);
    CHECK_FALSE(std::filesystem::exists(scene.file()));
  }
  SECTION("and they stay there") {
    scene.open();
    CHECK(scene.whose(8) == WhoseCopy::ours);
  }
}

TEST_CASE("ledger: a damaged file of events leaves files of unknown origin",
          "[fs][ledger][placed]") {
  LedgerScene scene;
  REQUIRE(note_event(*scene.salvage(), ledger::Exported{.at = the_name, .file = version_with(7)}));
  const auto size = std::filesystem::file_size(scene.file());
  SECTION("cut short") {
    std::filesystem::resize_file(scene.file(), size - 1);
  }
  SECTION("with another byte") {
    std::fstream file(scene.file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size - 1));
    file.put('\1');
  }
  scene.open();
  CHECK(scene.whose(7) == WhoseCopy::unsure);
  scene.open();
  CHECK(scene.whose(7) == WhoseCopy::unsure);
}

TEST_CASE("ledger: a file without events is room for those of a salvage", "[fs][ledger][placed]") {
  LedgerScene scene;
  (void)scene.salvage();
  scene.open();
  CHECK(std::filesystem::exists(scene.file()));
  struct stat st{};
  REQUIRE(::stat(scene.file().c_str(), &st) == 0);
  CHECK(st.st_blocks * 512 >= 256 * 1024);
}
