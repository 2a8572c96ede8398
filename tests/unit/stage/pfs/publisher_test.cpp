// SPDX-License-Identifier: BSD-3-Clause
// The publishers of a store that alone exports to results-dir.
#include "stage/pfs/publisher.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "stage/pfs/merging_publisher.hpp"
#include "stage/pfs/paced_pfs.hpp"
#include "stage/pfs/posix_handle.hpp"
#include "unit/stage/counted_pauses.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/pfs/merge_scene.hpp"
#include "unit/stage/pfs/published.hpp"

namespace efs::stage {
namespace {

using test::CountedPauses;
using test::FaultPfs;

struct stat stat_of(const MergeScene& scene, const std::string& name) {
  struct stat st{};
  REQUIRE(::fstatat(fd_of(scene.at), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0);
  return st;
}

TEST_CASE("publisher: only the guarded one binds a name to what was seen there", "[publisher]") {
  const struct stat seen{};
  CHECK(guarded_publisher().rule_for(&seen).over == &seen);
  CHECK_FALSE(guarded_publisher().rule_for(&seen).is_new);
  CHECK(guarded_publisher().rule_for(nullptr).is_new);
  CHECK_FALSE(guarded_publisher().rule_for(nullptr).over);
  const auto merging = merging_publisher(0);
  for (Publisher* other : {&replacing_publisher(), merging.get()}) {
    CHECK_FALSE(other->rule_for(&seen).is_bound());
    CHECK_FALSE(other->rule_for(nullptr).is_bound());
  }
}

TEST_CASE("publisher: a name that nobody looked at is taken from whoever has it", "[publisher]") {
  for (Publisher* publisher : {&replacing_publisher(), &guarded_publisher()}) {
    const MergeScene scene;
    scene.write("out", "theirs");
    scene.write("p", "ours");
    CHECK(published(*publisher, scene.at, "p", "out"));
    CHECK(scene.read("out") == "ours");
    CHECK_FALSE(scene.exists("p"));
  }
}

TEST_CASE("publisher: a name that must be free is taken from nobody", "[publisher]") {
  for (Publisher* publisher : {&replacing_publisher(), &guarded_publisher()}) {
    const MergeScene scene;
    scene.write("out", "theirs");
    scene.write("p", "ours");
    const Status given = published(*publisher, scene.at, "p", "out", {.is_new = true});
    REQUIRE_FALSE(given);
    CHECK(given.error().code == EEXIST);
    CHECK(scene.read("out") == "theirs");
    CHECK(scene.read("p") == "ours");
    CHECK(published(*publisher, scene.at, "p", "free", {.is_new = true}));
    CHECK(scene.read("free") == "ours");
  }
}

TEST_CASE("publisher: a file that was seen is replaced if it is still that file, also by a merge",
          "[publisher]") {
  const auto merging = merging_publisher(wall_clock() + 1'000'000'000);
  GuardedPublisher guarded_merge(*merging);
  for (Publisher* publisher : {&guarded_publisher(), static_cast<Publisher*>(&guarded_merge)}) {
    const MergeScene scene;
    scene.write("out", "old");
    scene.write("p", "ours");
    const auto seen = stat_of(scene, "out");
    const auto rule = publisher->rule_for(&seen);
    scene.write("q", "theirs");
    REQUIRE(::renameat(fd_of(scene.at), "q", fd_of(scene.at), "out") == 0);
    const Status given = published(*publisher, scene.at, "p", "out", rule);
    REQUIRE_FALSE(given);
    CHECK(given.error().code == EEXIST);
    CHECK(scene.read("out") == "theirs");
    const auto now = stat_of(scene, "out");
    CHECK(published(*publisher, scene.at, "p", "out", publisher->rule_for(&now)));
    CHECK(scene.read("out") == "ours");
  }
}

TEST_CASE("publisher: an input that was changed since is not removed", "[publisher]") {
  const MergeScene scene;
  scene.write("in", "first");
  const auto seen = stat_of(scene, "in");
  scene.write("q", "theirs");
  REQUIRE(::renameat(fd_of(scene.at), "q", fd_of(scene.at), "in") == 0);
  const auto removed = [&](const struct stat& known) {
    return guarded_publisher().remove(
        posix_pfs(), {.at = scene.at, .name = "in", .seen = known, .claimant = "r"});
  };
  const Status refused = removed(seen);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == EEXIST);
  CHECK(scene.read("in") == "theirs");
  CHECK(removed(stat_of(scene, "in")));
  CHECK_FALSE(scene.exists("in"));
}

TEST_CASE(
    "publisher: a name whose rename has to be tried again is announced again, after the pause",
    "[publisher][paced]") {
  const auto merging = merging_publisher(0);
  for (Publisher* publisher : {&replacing_publisher(), &guarded_publisher(), merging.get()}) {
    const MergeScene scene;
    scene.write("p", "ours");
    int failures = 2;
    FaultPfs faulty([&](auto, const std::string& call, const auto&) {
      return call == "rename" && failures-- > 0 ? EAGAIN : 0;
    });
    CountedPauses pauses;
    const Pace pace{.retries = 3};
    Throttle throttle(pace);
    const std::atomic<bool> cancel{false};
    PacedPfs paced(faulty, pace, throttle, cancel, pauses);
    const auto partial = stat_of(scene, "p");
    std::vector<Nanoseconds> announced;
    const std::string from = "p", to = "out";
    CHECK(publisher->publish(
        paced, {.names = {.at = scene.at, .from = from, .to = to}, .partial = partial},
        [&](bool is_shared) {
          CHECK_FALSE(is_shared);
          announced.push_back(pauses.now());
        }));
    CHECK(scene.read("out") == "ours");
    CHECK(paced.retried() == 2);
    REQUIRE(announced.size() == 3);
    CHECK(announced[0] < announced[1]);
    CHECK(announced[1] < announced[2]);
  }
}

TEST_CASE("publisher: an input whose removal fails for a moment is tried again", "[publisher]") {
  const MergeScene scene;
  scene.write("in", "input");
  const auto seen = stat_of(scene, "in");
  int failures = 2;
  FaultPfs faulty([&](auto, const std::string& call, const std::string& name) {
    return call == "unlink" && name == "in" && failures-- > 0 ? EAGAIN : 0;
  });
  CountedPauses pauses;
  const Pace pace{.retries = 3};
  Throttle throttle(pace);
  const std::atomic<bool> cancel{false};
  PacedPfs paced(faulty, pace, throttle, cancel, pauses);
  CHECK(guarded_publisher().remove(paced,
                                   {.at = scene.at, .name = "in", .seen = seen, .claimant = "r"}));
  CHECK(paced.retried() == 2);
  CHECK_FALSE(scene.exists("in"));
}

}  // namespace
}  // namespace efs::stage
