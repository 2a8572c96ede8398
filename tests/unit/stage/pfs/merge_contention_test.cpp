// SPDX-License-Identifier: BSD-3-Clause
// Results of several nodes in one directory, at the same time.
#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "stage/pfs/forwarding_pfs.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_publisher.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/posix_handle.hpp"
#include "unit/stage/pfs/merge_scene.hpp"
#include "unit/stage/pfs/published.hpp"

namespace efs::stage {
namespace {

// A PFS on which another node gets the claim to a name first and then calls `meanwhile`.
class ContendedPfs final : public ForwardingPfs {
 public:
  explicit ContendedPfs(std::function<void()> meanwhile)
      : ForwardingPfs(posix_pfs()), meanwhile_(std::move(meanwhile)) {}

  Status symlink(const std::string& target, PfsRef at, const std::string& name) override {
    if (std::exchange(first_, false)) {
      return meanwhile_(), fail(EEXIST);
    }
    return real_.symlink(target, at, name);
  }

 private:
  bool first_ = true;
  const std::function<void()> meanwhile_;
};

TEST_CASE("a partial that somebody has exchanged while its turn was waited for gets no name",
          "[merge]") {
  const MergeScene scene;
  scene.write("out", "old");
  scene.write("p", "ours");
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  ContendedPfs pfs([&] {
    scene.write("q", "half of ano");
    REQUIRE(::renameat(fd_of(scene.at), "q", fd_of(scene.at), "p") == 0);
  });
  const auto renamed = rename_merging(pfs, {scene.at, "p", "out"}, *now + 1'000'000'000);
  REQUIRE_FALSE(renamed);
  CHECK(renamed.error().code == ESTALE);
  CHECK(scene.read("out") == "old");
  CHECK(scene.read("p") == "half of ano");
}

TEST_CASE("who has waited for the claim to a name looks again: another node's is not replaced",
          "[merge]") {
  const MergeScene scene;
  scene.write("out", "old");
  scene.write("p", "ours");
  scene.write("q", "theirs");
  const auto now = pfs_now(scene.directory.path());
  REQUIRE(now);
  ContendedPfs pfs([&] { REQUIRE(::renameat(fd_of(scene.at), "q", fd_of(scene.at), "out") == 0); });
  struct stat ours{}, seen{};
  REQUIRE((::fstatat(fd_of(scene.at), "p", &ours, 0) == 0 &&
           ::fstatat(fd_of(scene.at), "out", &seen, 0) == 0));
  SECTION("for a name that was seen") {
    CHECK(guarded_publisher()
              .publish(pfs,
                       {.names = {.at = scene.at, .from = "p", .to = "out"},
                        .partial = ours,
                        .rule = {.over = &seen}},
                       {})
              .error()
              .code == EEXIST);
  }
  SECTION("for a removal") {
    CHECK(remove_over(pfs, scene.at, "out", seen, "p").error().code == EEXIST);
  }
  CHECK(scene.read("out") == "theirs");
}

TEST_CASE("a claim that is free again is had, however long the first look took", "[merge]") {
  const MergeScene scene;
  ContendedPfs pfs([] {});
  CHECK(NameClaim::take(pfs, scene.at, "out", "p", std::chrono::milliseconds(0)));
}

TEST_CASE("partials of several nodes have names of their own", "[merge]") {
  const std::string one = partial_tag_of("70b877ace6b54cb0c6d0ef2875a5b2d9"),
                    other = partial_tag_of("81c877ace6b54cb0c6d0ef2875a5b2d9");
  for (const std::string& name : {std::string("r"), std::string(250, 'r')}) {
    const std::string ours = partial_name(name, one), theirs = partial_name(name, other),
                      alone = partial_name(name);
    CHECK(ours != theirs);
    CHECK(ours != alone);
    CHECK(
        (ours.size() <= 255 && ours.ends_with(partial_suffix) && theirs.ends_with(partial_suffix)));
  }
}

TEST_CASE("nodes that bring out the same file at once and then change it lose nothing", "[merge]") {
  for (int round = 0; round < 50; ++round) {
    const MergeScene scene;
    const auto now = pfs_now(scene.directory.path());
    REQUIRE(now);
    constexpr int nodes = 4;
    std::array<std::string, nodes> told;  // what each node was told that is on the PFS
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < nodes; ++i) {
        threads.emplace_back([&, i] {
          const auto node = merging_publisher(*now);
          const std::string partial = "p" + std::to_string(i);
          for (const std::string& text : {std::string("same"), "node " + std::to_string(i)}) {
            scene.write(partial, text);
            if (published(*node, scene.at, partial, "out")) {
              told.at(static_cast<std::size_t>(i)) = text;
            }
          }
        });
      }
    }
    for (const auto& text : told) {
      CHECK((text.empty() || text == scene.read("out")));
    }
    CHECK(std::ranges::any_of(told, [](const auto& text) { return !text.empty(); }));
  }
}

TEST_CASE("of many nodes that bring out different files under one name exactly one succeeds",
          "[merge]") {
  enum class Old : std::uint8_t { nothing, file, of_two_names, not_to_be_written, link };
  for (const auto what :
       {Old::nothing, Old::file, Old::of_two_names, Old::not_to_be_written, Old::link}) {
    const MergeScene scene;
    const bool old = what != Old::nothing;
    if (what == Old::link) {
      REQUIRE(::symlinkat("nowhere", fd_of(scene.at), "out") == 0);
    } else if (old) {
      scene.write("out", "old");
    }
    if (what == Old::of_two_names) {
      REQUIRE(::linkat(fd_of(scene.at), "out", fd_of(scene.at), "second", 0) == 0);
    }
    if (what == Old::not_to_be_written) {
      REQUIRE(::fchmodat(fd_of(scene.at), "out", 0444, 0) == 0);
    }
    auto now = pfs_now(scene.directory.path());
    // A coarse clock: until it has moved on.
    for (struct stat st{}; old &&
                           ::fstatat(fd_of(scene.at), "out", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                           *now <= to_ns(st.st_ctim);) {
      now = pfs_now(scene.directory.path());
    }
    REQUIRE(now);
    constexpr int nodes = 8;
    std::atomic<int> good{0}, conflicts{0};
    for (int i = 0; i < nodes; ++i) {
      scene.write("p" + std::to_string(i), "node " + std::to_string(i));
    }
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < nodes; ++i) {
        threads.emplace_back([&, i] {
          // `since` lies after the old file and before all renames: those change ctime.
          const auto once = [&] {
            return rename_merging(posix_pfs(), {scene.at, "p" + std::to_string(i), "out"}, *now);
          };
          auto done = once();
          while (!done && is_held(done.error())) {
            done = once();
          }
          if (done) {
            ++good;
          } else if (done.error().code == EEXIST) {
            ++conflicts;
          }
        });
      }
    }
    INFO("what was there: " << static_cast<int>(what));
    CHECK(good == 1);
    CHECK(conflicts == nodes - 1);
    CHECK(scene.read("out").starts_with("node "));
  }
}

TEST_CASE("what one node removes and another replaces is the other's", "[merge]") {
  for (int round = 0; round < 200; ++round) {
    const MergeScene scene;
    // the same as the other's is not given up for it, either
    const std::string content = round % 2 == 0 ? "changed" : "old";
    scene.write("out", "old");
    scene.write("p", content);
    struct stat seen{};
    REQUIRE(::fstatat(fd_of(scene.at), "out", &seen, 0) == 0);
    Result<Placed> renamed = Placed::shared;
    {
      const std::jthread removing(
          [&] { (void)remove_over(posix_pfs(), scene.at, "out", seen, "r"); });
      // The other may be put aside while it has the claim: then it is tried again, as a stage-out
      // does.
      do {
        renamed = rename_merging(posix_pfs(), {scene.at, "p", "out"}, to_ns(seen.st_ctim) + 1);
      } while (!renamed && is_held(renamed.error()));
    }
    REQUIRE(renamed);
    CHECK(*renamed == Placed::ours);
    REQUIRE(scene.read("out") == content);
    CHECK(remove_over(posix_pfs(), scene.at, "out", seen, "r").error().code == EEXIST);
    const Status removed = guarded_publisher().remove(
        posix_pfs(), {.at = scene.at, .name = "out", .seen = seen, .claimant = "r"});
    REQUIRE_FALSE(removed);
    CHECK(removed.error().code == EEXIST);
    CHECK(remove_over(posix_pfs(), scene.at, "nosuch", seen, "r").error().code == ENOENT);
  }
}

}  // namespace
}  // namespace efs::stage
