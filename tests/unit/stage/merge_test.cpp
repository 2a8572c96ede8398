// Results of several nodes in one directory.
#include "stage/merge.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/temp.hpp"

namespace efs::stage {
namespace {

struct MergeScene {
  efs::test::TempDirectory directory;
  UniqueFd fd = directory.open();
  void write(const std::string& name, const std::string& text) const { std::ofstream(directory.path() + "/" + name) << text; }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory.path() + "/" + name).rdbuf();
    return text.str();
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(std::filesystem::symlink_status(directory.path() + "/" + name)); }
};

TEST_CASE("a name that nobody has is given", "[merge]") {
  const MergeScene scene;
  scene.write("p", "ours");
  REQUIRE(rename_merging(scene.fd.get(), "p", "out", 0));
  CHECK(scene.read("out") == "ours");
  CHECK_FALSE(scene.exists("p"));
}

TEST_CASE("what was there before the job is replaced", "[merge]") {
  const MergeScene scene;
  scene.write("out", "old");
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("p", "ours");
  REQUIRE(rename_merging(scene.fd.get(), "p", "out", *now + 1'000'000'000));
  CHECK(scene.read("out") == "ours");
  CHECK_FALSE(scene.exists("p"));
}

TEST_CASE("who reads an old file under a lock holds nobody up", "[merge]") {
  const MergeScene scene;
  scene.write("out", "old");
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  const UniqueFd reader(::openat(scene.fd.get(), "out", O_RDONLY | O_CLOEXEC));
  REQUIRE(::flock(reader.get(), LOCK_SH) == 0);
  scene.write("p", "ours");
  REQUIRE(rename_merging(scene.fd.get(), "p", "out", *now + 1'000'000'000));
  CHECK(scene.read("out") == "ours");
}

TEST_CASE("another node's file is never replaced; the same content is no conflict", "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("out", "theirs");
  scene.write("p", "theirs");
  CHECK(rename_merging(scene.fd.get(), "p", "out", *now));
  CHECK_FALSE(scene.exists("p"));
  scene.write("p", "ours!!");
  const auto conflict = rename_merging(scene.fd.get(), "p", "out", *now);
  REQUIRE_FALSE(conflict);
  CHECK(conflict.error().code == EEXIST);
  CHECK(conflict.error().what.contains("another node"));
  CHECK(scene.read("out") == "theirs");
  CHECK(scene.read("p") == "ours!!");
  // A link is not a file, and links are the same if they lead to the same place.
  std::filesystem::create_symlink("here", scene.directory.path() + "/l1");
  std::filesystem::create_symlink("here", scene.directory.path() + "/l2");
  CHECK_FALSE(rename_merging(scene.fd.get(), "l1", "out", *now));
  CHECK(rename_merging(scene.fd.get(), "l1", "l2", *now));
}

TEST_CASE("what this node has brought out is its own to replace, also for a successor, until somebody touches it", "[merge]") {
  const MergeScene scene;
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  scene.write("p", "first");
  REQUIRE(merging_pfs(*now)->rename(scene.fd.get(), "p", "out"));
  struct stat st {};
  REQUIRE(::fstatat(scene.fd.get(), "out", &st, 0) == 0);
  const fs::Origin ours{.device = st.st_dev, .inode = st.st_ino, .size = 5, .mtime = to_ns(st.st_mtim), .ctime = to_ns(st.st_ctim)};
  scene.write("p", "second");
  CHECK_FALSE(merging_pfs(*now)->rename(scene.fd.get(), "p", "out"));
  CHECK(merging_pfs(*now, std::span(&ours, 1))->rename(scene.fd.get(), "p", "out"));
  CHECK(scene.read("out") == "second");
  // Another file has the name now.
  scene.write("p", "third");
  CHECK_FALSE(merging_pfs(*now, std::span(&ours, 1))->rename(scene.fd.get(), "p", "out"));
}

TEST_CASE("of many nodes that bring out different files under one name exactly one succeeds", "[merge]") {
  for (const bool old : {false, true}) {
    const MergeScene scene;
    if (old) scene.write("out", "old");
    auto now = pfs_now(scene.directory.path());
    // A coarse clock: until it has moved on.
    for (struct stat st {}; old && ::fstatat(scene.fd.get(), "out", &st, 0) == 0 && *now <= to_ns(st.st_ctim);) now = pfs_now(scene.directory.path());
    REQUIRE(now);
    constexpr int nodes = 8;
    std::atomic<int> good{0}, conflicts{0};
    for (int i = 0; i < nodes; ++i) scene.write("p" + std::to_string(i), "node " + std::to_string(i));
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < nodes; ++i)
        threads.emplace_back([&, i] {
          // `since` lies after the old file and before all renames: those change ctime.
          const Status done = rename_merging(scene.fd.get(), "p" + std::to_string(i), "out", *now);
          if (done) ++good;
          else if (done.error().code == EEXIST) ++conflicts;
        });
    }
    INFO("an old file was there: " << old);
    CHECK(good == 1);
    CHECK(conflicts == nodes - 1);
    CHECK(scene.read("out").starts_with("node "));
  }
}

TEST_CASE("what one node removes and another replaces is the other's", "[merge]") {
  for (int round = 0; round < 200; ++round) {
    const MergeScene scene;
    const std::string content = round % 2 == 0 ? "changed" : "old";  // the same as the other's is not given up for it, either
    scene.write("out", "old");
    scene.write("p", content);
    struct stat seen {};
    REQUIRE(::fstatat(scene.fd.get(), "out", &seen, 0) == 0);
    Status renamed;
    {
      const std::jthread removing([&] { (void)remove_merging(scene.fd.get(), "out", seen); });
      renamed = rename_merging(scene.fd.get(), "p", "out", to_ns(seen.st_ctim) + 1);
    }
    REQUIRE(renamed);
    REQUIRE(scene.read("out") == content);
    CHECK(remove_merging(scene.fd.get(), "out", seen).error().code == EEXIST);
    CHECK(remove_merging(scene.fd.get(), "nosuch", seen).error().code == ENOENT);
  }
}

}  // namespace
}  // namespace efs::stage
