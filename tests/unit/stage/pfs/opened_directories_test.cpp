// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/opened_directories.hpp"

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>

#include "stage/export/results_tree.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

using Modes = std::map<std::string, mode_t>;

UniqueFd metadata_of(const Scene& scene) {
  stdfs::create_directories(scene.results + "-meta");
  return UniqueFd(::open((scene.results + "-meta").c_str(), O_RDONLY | O_DIRECTORY));
}

std::string file_of(const Scene& scene) {
  return scene.results + "-meta/" + opened_name;
}

mode_t mode_of(const std::string& path) {
  return stat_of(path).st_mode & 07777;
}

}  // namespace

TEST_CASE(
    "opened directories: the next process knows those that have not their modes, and each is given "
    "out once",
    "[stage][opened]") {
  Scene scene;
  const UniqueFd metadata = metadata_of(scene);
  const std::string newline = "a\n0700 /b";
  {
    auto opened = OpenedDirectories::open(metadata.get());
    CHECK(!stdfs::exists(file_of(scene)));
    CHECK(opened->note("/r/a", S_IFDIR | 0555));
    CHECK(opened->note("/r/" + newline, 02500));
    CHECK(opened->note("/r/shut", 0));
    CHECK(opened->note("/rest", 0555));
    opened->done("/r/shut");
    opened->done("/r/unknown");
    CHECK(opened->take("/r").empty());  // it knows them itself
  }
  auto opened = OpenedDirectories::open(metadata.get());
  CHECK(opened->take("/r") == Modes{{"a", 0555}, {newline, 02500}});
  CHECK(opened->take("/r").empty());
  CHECK(opened->take("/") == Modes{{"rest", 0555}});
  for (const auto& path : {std::string("/r/a"), "/r/" + newline, std::string("/rest")}) {
    opened->done(path);
  }
  CHECK(stdfs::file_size(file_of(scene)) == 0);
  CHECK(OpenedDirectories::open(metadata.get())->take("/").empty());
}

TEST_CASE(
    "opened directories: what is behind the last whole record is written over, and a file that is "
    "none of ours says nothing",
    "[stage][opened]") {
  Scene scene;
  const UniqueFd metadata = metadata_of(scene);
  const std::string first("0555 /r/a\0", 10);
  for (const std::string& rest :
       {std::string("07"), std::string("0700 /r/b"), std::string("x700 /r/b\0", 10),
        std::string("0700 r\0", 7), std::string("\0\0\0", 3)}) {
    write_file(file_of(scene), first + rest);
    auto opened = OpenedDirectories::open(metadata.get());
    CHECK(opened->note("/r/c", 0500));
    CHECK(content_of(file_of(scene)).starts_with(first + std::string("0500 /r/c\0", 10)));
    CHECK(OpenedDirectories::open(metadata.get())->take("/r") == Modes{{"a", 0555}, {"c", 0500}});
  }
  stdfs::remove(file_of(scene));
  stdfs::create_symlink("/etc/passwd", file_of(scene));
  CHECK(OpenedDirectories::open(metadata.get())->take("/").empty());
  CHECK(!OpenedDirectories::open(metadata.get())->note("/r/a", 0500));
}

TEST_CASE("opened directories: killed at every PFS call, the next stage-out gives them back",
          "[stage][opened][out][killed]") {
  const auto seed = efs::test::seed();
  const efs::test::Sample sample(seed);
  std::size_t left_open = 0;
  for (std::uint64_t n = sample.first;; n += sample.step) {
    Scene scene;
    scene.options.workers = 1;
    for (const char* name : {"shut/input", "shut/below/input"}) {
      write_file(scene.root + "/" + name, "input");
    }
    scene.resource("shut");
    scene.config.results_dir = scene.root;
    scene.config.in_place = true;
    for (const char* name : {"/shut/below", "/shut"}) {
      stdfs::permissions(scene.root + name, stdfs::perms{0555});
    }
    REQUIRE(scene.in().ok());
    for (const char* name : {"shut/result", "shut/below/result"}) {
      scene.buffer.put(name, S_IFREG, "result");
    }
    const UniqueFd metadata = metadata_of(scene);
    const auto out = [&](PfsIo& pfs) {
      const auto opened = OpenedDirectories::open(metadata.get());
      scene.options.opened = opened.get();
      return scene.out(pfs);
    };
    const auto code = killed_at_call(n, [&](PfsIo& pfs) { return exit_code(out(pfs)); });
    INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ": killed at call " << n);
    left_open += static_cast<std::size_t>(mode_of(scene.root + "/shut") != 0555);
    const Receipt receipt = out(posix_pfs());
    INFO(describe(receipt));
    REQUIRE(receipt.verdict == Verdict::complete);
    for (const char* name : {"/shut", "/shut/below"}) {
      REQUIRE(mode_of(scene.root + name) == 0555);
      REQUIRE(content_of(scene.root + name + "/result") == "result");
      stdfs::permissions(scene.root + name, stdfs::perms{0755});  // the scene has to be removed
    }
    REQUIRE(OpenedDirectories::open(metadata.get())->take("/").empty());
    REQUIRE(code.value_or(0) == 0);
    if (code) {
      break;
    }
  }
  CHECK(left_open > 0);
}

TEST_CASE(
    "opened directories: one whose mode cannot be given back is told of, and is the next one's, of "
    "this process or of another",
    "[stage][opened][out]") {
  Scene scene;
  const UniqueFd metadata = metadata_of(scene);
  const std::string directory = scene.results + "/d";
  stdfs::create_directories(directory);
  stdfs::permissions(directory, stdfs::perms{0555});
  auto opened = OpenedDirectories::open(metadata.get());
  for (const bool by_another : {false, true}) {
    for (const char* call : {"lstat", "chmod"}) {
      bool broken = false;
      FaultPfs pfs([&](auto, const std::string& name, const auto&) {
        return broken && name == call ? EIO : 0;
      });
      {
        ResultsTree tree(pfs, opened.get());
        REQUIRE(tree.open(scene.results));
        REQUIRE(tree.grant_owner_access("d"));
        broken = true;
        const Status shut = tree.restore_access();
        REQUIRE(!shut);
        CHECK(shut.error().code == EIO);
        CHECK(mode_of(directory) == 0755);
      }
      if (by_another) {
        opened = OpenedDirectories::open(metadata.get());
      }
      ResultsTree tree(posix_pfs(), opened.get());
      REQUIRE(tree.open(scene.results));
      CHECK(tree.restore_access());
      CHECK(mode_of(directory) == 0555);
      CHECK(stdfs::file_size(file_of(scene)) == 0);
    }
  }
}

TEST_CASE("opened directories: one that somebody has changed since keeps the mode that he gave it",
          "[stage][opened][out]") {
  Scene scene;
  const UniqueFd metadata = metadata_of(scene);
  const std::string directory = scene.results + "/d";
  stdfs::create_directories(directory);
  REQUIRE(OpenedDirectories::open(metadata.get())->note(directory, 0555));
  stdfs::permissions(directory, stdfs::perms{0750});
  const auto opened = OpenedDirectories::open(metadata.get());
  ResultsTree tree(posix_pfs(), opened.get());
  REQUIRE(tree.open(scene.results));
  CHECK(tree.restore_access());
  CHECK(mode_of(directory) == 0750);
  CHECK(OpenedDirectories::open(metadata.get())->take("/").empty());
}

TEST_CASE(
    "opened directories: one that is not there is forgotten by a stage-out, and not by a start, "
    "for it may not be mounted yet",
    "[stage][opened][out]") {
  Scene scene;
  const UniqueFd metadata = metadata_of(scene);
  const std::string directory = scene.results + "/d";
  stdfs::create_directories(scene.results);
  REQUIRE(OpenedDirectories::open(metadata.get())->note(directory, 0555));
  const auto restore_access = [&](bool for_good) {
    const auto opened = OpenedDirectories::open(metadata.get());
    CHECK(opened->has_any_of_before());
    ResultsTree tree(posix_pfs(), opened.get());
    REQUIRE(tree.open(scene.results));
    CHECK(tree.restore_access(for_good));
  };
  restore_access(false);
  stdfs::create_directories(directory);
  stdfs::permissions(directory, stdfs::perms{0755});
  restore_access(false);
  CHECK(mode_of(directory) == 0555);
  REQUIRE(OpenedDirectories::open(metadata.get())->note(directory, 0555));
  stdfs::remove(directory);
  restore_access(true);
  CHECK_FALSE(OpenedDirectories::open(metadata.get())->has_any_of_before());
}
