// SPDX-License-Identifier: BSD-3-Clause
// The ledger by names: finds the origin of the file that has a name.
#include "stage/versions/placed_names.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "support/placed.hpp"
#include "support/temp.hpp"

namespace efs::stage {
namespace {

struct PlacedScene {
  efs::test::TempDirectory directory;
  UniqueFd metadata = directory.open();
  std::unique_ptr<PlacedNames> names = opened();

  std::unique_ptr<PlacedNames> opened(const char* results_dir = "/results") const {
    return efs::test::placed_names(metadata.get(), results_dir);
  }

  void reopen() { names = opened(); }

  std::string file() const { return directory.path() + "/" + fs::placed_name; }

  WhoseCopy ownership(const std::string& name, const struct stat& there,
                      bool by_ctime = true) const {
    return names->look({.name = name, .own = name}, there, by_ctime);
  }
};

struct stat file_of(std::uint64_t inode, Nanoseconds ctime = 5, std::uint64_t links = 1) {
  struct stat st{};
  st.st_ino = inode;
  st.st_size = 100;
  st.st_nlink = links;
  st.st_mtim = to_timespec(3);
  st.st_ctim = to_timespec(ctime);
  return st;
}

constexpr PlacedName x{.name = "d/x", .own = "d/x"};

TEST_CASE("placed: of a name that it does not know nothing is said", "[stage][placed]") {
  PlacedScene scene;
  CHECK_FALSE(scene.names->knows("d/x"));
  CHECK(scene.ownership("d/x", file_of(7)) == WhoseCopy::unknown);
  CHECK(scene.names->copies().empty());
}

TEST_CASE("placed: what got the name is ours, and no other version, also for the next process",
          "[stage][placed]") {
  PlacedScene scene;
  const struct stat copy = file_of(7);
  REQUIRE(scene.names->coming(x, &copy, nullptr));
  REQUIRE(scene.names->placed(x, &copy, false));
  for (int process = 0; process < 2; ++process, scene.reopen()) {
    CHECK(scene.names->knows("d/x"));
    CHECK(scene.ownership("d/x", copy) == WhoseCopy::ours);
    CHECK(scene.names->look({.name = "d/x", .own = "e/x"}, copy, true) ==
          WhoseCopy::of_another_path);
    CHECK(scene.ownership("d/x", file_of(8)) == WhoseCopy::theirs);
    CHECK(scene.ownership("d/x", file_of(7, 6)) == WhoseCopy::theirs);
    CHECK(scene.ownership("d/x", file_of(7, 6), false) == WhoseCopy::ours);
    CHECK(scene.ownership("d/x", file_of(7, 6, 2)) == WhoseCopy::ours);
    CHECK(scene.ownership("d/y", copy) == WhoseCopy::unknown);
    CHECK(scene.names->copies().size() == 1);
  }
  CHECK(scene.opened("/elsewhere")->look(x, copy, true) == WhoseCopy::unknown);
}

TEST_CASE("placed: a copy that had several names is known without its ctime", "[stage][placed]") {
  PlacedScene scene;
  const struct stat copy = file_of(7, 5, 2);
  REQUIRE(scene.names->placed(x, &copy, false));
  scene.reopen();
  CHECK(scene.ownership("d/x", file_of(7, 6)) == WhoseCopy::ours);
}

TEST_CASE("placed: what another node may have, too, is nobody's to replace", "[stage][placed]") {
  PlacedScene scene;
  const struct stat copy = file_of(7);
  REQUIRE(scene.names->placed(x, &copy, true));
  scene.reopen();
  CHECK(scene.ownership("d/x", copy) == WhoseCopy::theirs);
  REQUIRE(scene.names->copies().size() == 1);
  CHECK(scene.names->copies().front().ctime == 0);
}

TEST_CASE("placed: a process that dies between the two notes", "[stage][placed]") {
  PlacedScene scene;
  const struct stat before = file_of(6), copy = file_of(7);
  SECTION("over what was there before the job") {
    REQUIRE(scene.names->coming(x, &copy, &before));
    scene.reopen();
    CHECK(scene.ownership("d/x", file_of(7, 9)) == WhoseCopy::ours);  // the rename moves its ctime
    CHECK(scene.ownership("d/x", before) == WhoseCopy::unknown);      // it was not renamed
  }
  SECTION("where nothing was") {
    REQUIRE(scene.names->coming(x, &copy, nullptr));
    scene.reopen();
    CHECK(scene.ownership("d/x", before) == WhoseCopy::theirs);
  }
  SECTION("over its own") {
    REQUIRE(scene.names->placed(x, &before, false));
    REQUIRE(scene.names->coming(x, &copy, &before));
    scene.reopen();
    CHECK(scene.ownership("d/x", before) == WhoseCopy::ours);
    CHECK(scene.ownership("d/x", copy) == WhoseCopy::ours);
    SECTION("and again, and the second time in vain") {
      const struct stat next = file_of(8), there = file_of(7, 9);
      REQUIRE(scene.names->coming(x, &next, &there));
      scene.reopen();
      CHECK(scene.ownership("d/x", there) == WhoseCopy::ours);
      CHECK(scene.ownership("d/x", next) == WhoseCopy::ours);
      CHECK(scene.ownership("d/x", before) == WhoseCopy::theirs);
    }
  }
  SECTION("of a removal") {
    REQUIRE(scene.names->placed(x, &before, false));
    REQUIRE(scene.names->coming(x, nullptr, &before));
    scene.reopen();
    CHECK(scene.ownership("d/x", before) == WhoseCopy::ours);
  }
  CHECK(scene.ownership("d/x", file_of(9)) == WhoseCopy::theirs);
}

TEST_CASE("placed: where something was removed, what comes is somebody else's", "[stage][placed]") {
  PlacedScene scene;
  const struct stat copy = file_of(7);
  REQUIRE(scene.names->placed(x, &copy, false));
  REQUIRE(scene.names->placed(x, nullptr, false));
  scene.reopen();
  CHECK(scene.names->knows("d/x"));
  CHECK(scene.ownership("d/x", copy) == WhoseCopy::theirs);
  CHECK(scene.names->copies().empty());
}

TEST_CASE("placed: what is forgotten is unknown", "[stage][placed]") {
  PlacedScene scene;
  const struct stat copy = file_of(7);
  REQUIRE(scene.names->forget("d/x"));
  REQUIRE(scene.names->placed(x, &copy, false));
  REQUIRE(scene.names->coming(x, &copy, &copy));
  REQUIRE(scene.names->forget("d/x"));
  for (int process = 0; process < 2; ++process, scene.reopen()) {
    CHECK_FALSE(scene.names->knows("d/x"));
    CHECK(scene.ownership("d/x", file_of(8)) == WhoseCopy::unknown);
  }
}

TEST_CASE("placed: copies are told in the order of time", "[stage][placed]") {
  PlacedScene scene;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const std::string name = "f" + std::to_string(i * 7 % 50);
    const struct stat copy = file_of(100 + i);
    REQUIRE(scene.names->placed({.name = name, .own = name}, &copy, false));
  }
  scene.reopen();
  const auto copies = scene.names->copies();
  REQUIRE(copies.size() == 50);
  for (std::uint64_t i = 0; i < 50; ++i) {
    CHECK(copies[i].inode == 100 + i);
  }
}

TEST_CASE("placed: many notes of few names leave a short file that says the same",
          "[stage][placed]") {
  PlacedScene scene;
  for (std::uint64_t i = 0; i < 30'000; ++i) {
    const std::string name = "f" + std::to_string(i % 10);
    const struct stat copy = file_of(1000 + i), before = file_of(990 + i);
    REQUIRE(scene.names->coming({.name = name, .own = name}, &copy, &before));
    if (i < 29'995) {
      REQUIRE(scene.names->placed({.name = name, .own = name}, &copy, false));
    }
  }
  CHECK(std::filesystem::file_size(scene.file()) < 112 * 10'000);
  for (int process = 0; process < 2; ++process, scene.reopen()) {
    for (std::uint64_t i = 0; i < 10; ++i) {
      const std::uint64_t last = 29'990 + i;
      CHECK(scene.ownership("f" + std::to_string(i), file_of(1000 + last, 9), false) ==
            WhoseCopy::ours);
      CHECK(scene.ownership("f" + std::to_string(i), file_of(990 + last), false) ==
            (i < 5 ? WhoseCopy::theirs : WhoseCopy::ours));
      CHECK(scene.ownership("f" + std::to_string(i), file_of(980 + last), false) ==
            WhoseCopy::theirs);
    }
  }
}

TEST_CASE("placed: damage takes nothing for ours that is not", "[stage][placed]") {
  const auto seed = efs::test::seed();
  std::mt19937_64 random(seed);
  const struct stat old = file_of(6), copy = file_of(7);
  std::array<unsigned, 5> met{};
  for (int round = 0; round < 300; ++round) {
    PlacedScene scene;
    REQUIRE(scene.names->placed(x, &old, false));
    REQUIRE(scene.names->placed({.name = "y", .own = "y"}, &old, false));
    REQUIRE(scene.names->coming(x, &copy, &old));
    REQUIRE(scene.names->placed(x, &copy, false));
    const auto size = std::filesystem::file_size(scene.file());
    REQUIRE(size == 5 * 112);
    std::optional<std::uint64_t> cut;
    if (round % 3 == 0) {
      cut = random() % size;
      std::filesystem::resize_file(scene.file(), *cut);
    } else {
      std::fstream file(scene.file(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(random() % size));
      file.put(static_cast<char>(random()));
    }
    scene.reopen();
    INFO("round " << round << ", EFS_TEST_SEED=" << seed);
    ++met.at(static_cast<std::size_t>(scene.ownership("d/x", copy)));
    // Only a cut between two records cannot be detected.
    const bool is_cut = cut && *cut % 112 == 0;
    for (const char* name : {"d/x", "y"}) {
      const WhoseCopy whose = scene.ownership(name, file_of(9));
      CHECK((whose == WhoseCopy::theirs || whose == WhoseCopy::unsure ||
             (is_cut && whose == WhoseCopy::unknown)));
    }
    // It is written on.
    const struct stat next = file_of(8);
    REQUIRE(scene.names->placed(x, &next, false));
    scene.reopen();
    CHECK(scene.ownership("d/x", next) == WhoseCopy::ours);
    CHECK(scene.ownership("d/x", copy) == WhoseCopy::theirs);
  }
  CHECK(met[static_cast<std::size_t>(WhoseCopy::ours)] > 0);
  CHECK(met[static_cast<std::size_t>(WhoseCopy::theirs)] > 0);
  CHECK(met[static_cast<std::size_t>(WhoseCopy::unsure)] > 0);
}

/// Files of this process end there, as in a buffer that is full.
class FullAt {
 public:
  explicit FullAt(std::uint64_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }

  FullAt(const FullAt&) = delete;
  FullAt& operator=(const FullAt&) = delete;

  ~FullAt() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  struct rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

TEST_CASE("placed: what a full buffer has no room to note, the next process is unsure of",
          "[stage][placed]") {
  PlacedScene scene;
  const struct stat first = file_of(7), second = file_of(8, 50), early = file_of(9, 49),
                    late = file_of(9, 60);
  REQUIRE(scene.names->placed(x, &first, false));
  {
    const FullAt full(2 * 112);
    CHECK_FALSE(scene.names->coming({.name = "y", .own = "y"}, &second, nullptr));
    CHECK_FALSE(scene.names->placed({.name = "y", .own = "y"}, &second, false));
    CHECK(scene.ownership("y", second) == WhoseCopy::ours);
    CHECK_FALSE(scene.names->is_incomplete());
  }
  SECTION("by when it came") {
    for (int process = 0; process < 2; ++process) {
      scene.reopen();
      CHECK(scene.names->is_incomplete());
      CHECK(scene.ownership("d/x", first) == WhoseCopy::ours);
      CHECK(scene.ownership("y", second) == WhoseCopy::unsure);
      CHECK(scene.ownership("y", late) == WhoseCopy::unsure);
      CHECK(scene.ownership("y", early) == WhoseCopy::unknown);
    }
  }
  SECTION("unless there was room later") {
    REQUIRE(scene.names->sync());
    scene.reopen();
    CHECK_FALSE(scene.names->is_incomplete());
    CHECK(scene.ownership("y", second) == WhoseCopy::ours);
    CHECK(scene.ownership("y", late) == WhoseCopy::theirs);
    CHECK(scene.ownership("z", late) == WhoseCopy::unknown);
  }
}

TEST_CASE("placed: what is no file of ours in its place is refused", "[stage][placed]") {
  const efs::test::TempDirectory directory;
  const UniqueFd metadata = directory.open();
  SECTION("a link") {
    REQUIRE(::symlinkat("/etc/passwd", metadata.get(), fs::placed_name) == 0);
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifoat(metadata.get(), fs::placed_name, 0600) == 0);
  }
  SECTION("a directory") {
    REQUIRE(::mkdirat(metadata.get(), fs::placed_name, 0700) == 0);
  }
  const auto made = fs::PlacedFile::open(metadata.get());
  REQUIRE_FALSE(made);
  CHECK(describe(made.error()).find("meta/placed") != std::string::npos);
}

TEST_CASE(
    "placed: what a directory was given is known, and that it was about to get something, also to "
    "the next process",
    "[stage][placed]") {
  PlacedScene scene;
  const PlacedName other{.name = "d/x", .own = "d/y"};
  CHECK_FALSE(scene.names->directory(x).version);
  REQUIRE(scene.names->coming_directory(x));
  if (GENERATE(false, true)) {
    scene.reopen();
  }
  CHECK(scene.names->directory(x).interrupted);
  CHECK_FALSE(scene.names->directory(other).interrupted);
  REQUIRE(scene.names->placed_directory(x, 17));
  const DirectoryAttributes has{
      .mode = 02750, .uid = 0xfffffffe, .gid = 7, .xattrs = {{"user.a", "b"}}};
  REQUIRE(scene.names->applied_directory(x, 18));
  REQUIRE(scene.names->coming_directory(x, &has));
  scene.reopen();
  const auto coming = scene.names->directory(x);
  CHECK(coming.version == 17);
  CHECK_FALSE(coming.applied);
  REQUIRE(coming.was);
  CHECK((coming.was->mode == has.mode && coming.was->uid == has.uid && coming.was->gid == has.gid &&
         coming.was->xattrs == shape_of(has).xattrs));
  REQUIRE(scene.names->applied_directory(x, 19));
  scene.reopen();
  CHECK(scene.names->directory(x).applied == 19);
  CHECK_FALSE(scene.names->directory(x).interrupted);
  REQUIRE(scene.names->placed_directory(x, {}));  // it came to nothing
  if (GENERATE(false, true)) {
    scene.reopen();
  }
  CHECK(scene.names->directory(x).version == 17);
  CHECK_FALSE(scene.names->directory(x).interrupted);
  CHECK_FALSE(scene.names->directory(other).version);
  // a file of this name has no record
  CHECK(scene.ownership("d/x", file_of(7)) == WhoseCopy::unknown);
  // the file is made shorter
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    REQUIRE(scene.names->placed_directory({.name = "e", .own = "e"}, i));
  }
  scene.reopen();
  CHECK(scene.names->directory(x).version == 17);
  CHECK(std::filesystem::file_size(scene.file()) < 20'000 * 112);
}

}  // namespace
}  // namespace efs::stage
