// SPDX-License-Identifier: BSD-3-Clause
// Names that another node or job has claimed: the stage-out exports all others first and then waits
// for all claims together.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <memory>

#include "stage/pfs/name_claim.hpp"
#include "unit/stage/counted_pauses.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/live_scene.hpp"
#include "unit/stage/opened.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr Nanoseconds in_a_second = 1'000'000'000;
const std::string is_named =
    "another node or job has claimed this name, and does not finish: "
    ".efs-claim-";
const std::string whose =
    " is its claim, of another.efs-partial; if that process is dead, remove the claim, and try "
    "again";

/// Claims of another node to names in one directory.
class Claims {
 public:
  explicit Claims(const std::string& directory) : directory_(opened(directory)) {}

  void make(const std::string& name) {
    auto claim = NameClaim::take(posix_pfs(), directory_, name, "another.efs-partial");
    REQUIRE(claim);
    claims_.emplace(name, std::make_unique<NameClaim>(std::move(*claim)));
  }

  void give_back(const std::string& name) { claims_.erase(name); }

 private:
  PfsHandle directory_;
  std::map<std::string, std::unique_ptr<NameClaim>> claims_;
};

/// Inputs in place, all of which the job has changed.
struct Changed : Scene {
  explicit Changed(const std::vector<std::string>& names) {
    config.results_dir = root;
    config.in_place = true;
    for (const auto& name : names) {
      write_file(root + "/" + name, "old");
    }
    resource("");
    REQUIRE(in().ok());
    for (const auto& name : names) {
      buffer.overwrite(name, "new");
    }
    options.pauses = &pauses;
  }

  bool is_out(const std::string& name) const { return content_of(root + "/" + name) == "new"; }

  std::function<void()> meanwhile;
  CountedPauses pauses{[this] {
    if (meanwhile) {
      meanwhile();
    }
  }};
};

}  // namespace

TEST_CASE(
    "stage-out: names that others have are waited for behind all else, and for ten seconds "
    "together",
    "[stage][out][merge]") {
  std::vector<std::string> names;
  for (int i = 10; i < 40; ++i) {
    names.push_back("f" + std::to_string(i));
  }
  Changed scene(names);
  Claims claims(scene.root);
  for (std::size_t i = 0; i < 20; ++i) {
    claims.make(names[i]);
  }
  bool others_first = true;
  scene.meanwhile = [&] {
    others_first = others_first && scene.is_out("f30") && scene.is_out("f39");
  };
  const Receipt receipt = scene.out();
  CHECK(others_first);
  CHECK(receipt.totals.staged_out == 10);
  CHECK(receipt.totals.failed == 20);
  CHECK(entry_of(receipt, "f10")->code == EBUSY);
  CHECK(entry_of(receipt, "f10")->reason.starts_with(is_named));
  CHECK(entry_of(receipt, "f10")->reason.ends_with(whose));
  CHECK(content_of(scene.root + "/f10") == "old");
  CHECK(partials_below(scene.root) == 20);  // the claims
  CHECK(scene.pauses.passed() >= 10 * in_a_second);
  CHECK(scene.pauses.passed() < 11 * in_a_second);
  for (const auto& name : names) {
    claims.give_back(name);
  }
  scene.meanwhile = {};
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(std::ranges::all_of(names, [&](const std::string& name) { return scene.is_out(name); }));
}

TEST_CASE("stage-out: a name that is given back in time is given", "[stage][out][merge]") {
  Changed scene({"a", "b"});
  Claims claims(scene.root);
  claims.make("a");
  claims.make("b");
  // The stage-out waits for each claim: it does not give up while claims are released.
  scene.meanwhile = [&] {
    if (scene.pauses.passed() > 8 * in_a_second) {
      claims.give_back("a");
    }
    if (scene.pauses.passed() > 16 * in_a_second) {
      claims.give_back("b");
    }
  };
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.is_out("a"));
  CHECK(scene.is_out("b"));
  CHECK(partials_below(scene.root) == 0);
}

TEST_CASE("stage-out: a version that came while the name was waited for is a conflict",
          "[stage][out][merge]") {
  Changed scene({"a"});
  Claims claims(scene.root);
  claims.make("a");
  scene.meanwhile = [&] {
    write_file(scene.root + "/a", "theirs");
    claims.give_back("a");
  };
  CHECK(action_of(scene.out(), "a") == Action::conflict);
  CHECK(content_of(scene.root + "/a") == "theirs");
  CHECK(partials_below(scene.root) == 0);
}

TEST_CASE(
    "stage-out: what is cancelled, as at its deadline, does not wait for names, and all else is "
    "out",
    "[stage][out][merge]") {
  Changed scene({"a", "b", "c"});
  Claims claims(scene.root);
  claims.make("a");
  Progress progress;
  scene.meanwhile = [&] {
    progress.cancel = true;
  };
  const Receipt receipt =
      stage_out(scene.config, scene.buffer, posix_pfs(), scene.options, progress);
  CHECK(action_of(receipt, "a") == Action::not_saved);
  CHECK(entry_of(receipt, "a")->reason.ends_with(whose + "; cancelled"));
  CHECK(scene.is_out("b"));
  CHECK(scene.is_out("c"));
  CHECK(partials_below(scene.root) == 1);  // the claim
  CHECK(scene.pauses.passed() < in_a_second);
}

TEST_CASE("stage-out: a name that is free by the end of the time is given yet",
          "[stage][out][merge]") {
  Changed scene({"a"});
  Claims claims(scene.root);
  claims.make("a");
  Progress progress;
  scene.meanwhile = [&] {
    progress.cancel = true;
    claims.give_back("a");
  };
  CHECK(stage_out(scene.config, scene.buffer, posix_pfs(), scene.options, progress).verdict ==
        Verdict::complete);
  CHECK(scene.is_out("a"));
}

TEST_CASE(
    "stage-out: where time may run out, a name that is free again goes before what comes behind it",
    "[stage][out][merge]") {
  Changed scene({"a", "b", "c"});
  REQUIRE(::truncate(scene.buffer.container(scene.buffer.nodes.at("b").ino).c_str(), 140 << 20) ==
          0);
  Claims claims(scene.root);
  claims.make("a");
  bool is_before = false;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "syncfs" || call == "fsync") {
      claims.give_back("a");
    }
    if (call == "open" && object == "c.efs-partial") {
      is_before = scene.is_out("a");
    }
    return 0;
  });
  scene.options.by_rank = true;
  scene.options.batch_bytes = 8;  // a batch each
  Progress progress;
  CHECK(stage_out(scene.config, scene.buffer, pfs, scene.options, progress).verdict ==
        Verdict::complete);
  CHECK(is_before);
}

TEST_CASE("stage-out: several names of one file stay one file, whichever of them is waited for",
          "[stage][out][merge][links]") {
  const std::string held = GENERATE("a", "z", "both");
  const bool is_given_back = GENERATE(true, false);
  INFO(held << (is_given_back ? " given back" : " held"));
  Changed scene({"a"});
  scene.buffer.link("a", "z");
  write_file(scene.root + "/z", "another's");
  const auto z = stat_of(scene.root + "/z");
  for (auto& [name, node] : scene.buffer.nodes) {
    if (name == "z") {
      node.origin = fs::Origin{.device = z.st_dev,
                               .inode = z.st_ino,
                               .size = 9,
                               .mtime = to_ns(z.st_mtim),
                               .ctime = to_ns(z.st_ctim)};
    }
  }
  Claims claims(scene.root);
  for (const auto* name : {"a", "z"}) {
    if (held == name || held == "both") {
      claims.make(name);
    }
  }
  if (is_given_back) {
    scene.meanwhile = [&] {
      claims.give_back("a"), claims.give_back("z");
    };
  }
  const Receipt receipt = scene.out();
  for (const auto* name : {"a", "z"}) {
    const bool is_held = (held == name || held == "both") && !is_given_back;
    CHECK(action_of(receipt, name) == (is_held ? Action::failed : Action::staged_out));
    CHECK(scene.is_out(name) != is_held);
  }
  if (is_given_back) {
    CHECK(stat_of(scene.root + "/a").st_ino == stat_of(scene.root + "/z").st_ino);
  }
  CHECK(partials_below(scene.root) == (is_given_back ? 0 : held == "both" ? 2 : 1));
  // the second name behind the first
  CHECK(scene.pauses.passed() < (held == "both" ? 22 : 11) * in_a_second);
}

TEST_CASE(
    "deletions: an input that another is about to replace is waited for, and stays while he has it",
    "[stage][out][merge][deletions]") {
  const bool is_given_back = GENERATE(true, false);
  Changed scene({"a", "b"});
  scene.config.deletions = config::Deletions::propagate;
  const auto items = *scene.buffer.walk();
  for (const auto* name : {"a", "b"}) {
    scene.buffer.gone_items.push_back(*std::ranges::find(items, name, &fs::WalkItem::path));
    scene.buffer.nodes.erase(name);
  }
  Claims claims(scene.root);
  claims.make("a");
  bool other_first = true;
  scene.meanwhile = [&] {
    other_first = other_first && !stdfs::exists(scene.root + "/b");
    if (is_given_back) {
      claims.give_back("a");
    }
  };
  const Receipt receipt = scene.out();
  CHECK(other_first);
  CHECK(action_of(receipt, "b") == Action::removed);
  CHECK(stdfs::exists(scene.root + "/a") == !is_given_back);
  CHECK(action_of(receipt, "a") == (is_given_back ? Action::removed : Action::failed));
  if (!is_given_back) {
    CHECK(entry_of(receipt, "a")->code == EBUSY);
  }
  if (!is_given_back) {
    CHECK(entry_of(receipt, "a")->reason.starts_with("removing it: " + is_named));
  }
  CHECK(partials_below(scene.root) == (is_given_back ? 0 : 1));
}

TEST_CASE("a part whose name another has is waited for, and goes nowhere while he has it",
          "[stage][merge]") {
  const bool is_given_back = GENERATE(true, false);
  LiveScene scene;
  scene.buffer.write("p", std::string(100, 'p'));
  REQUIRE(scene.back({.names = {"p"}}).verdict == Verdict::complete);
  scene.buffer.write("p", std::string(100, 'q'));
  Claims claims(scene.config.results_dir);
  claims.make("p");
  CountedPauses pauses([&] {
    if (is_given_back) {
      claims.give_back("p");
    }
  });
  scene.options.pauses = &pauses;
  const Receipt receipt = scene.back({.names = {"p"}, .part = {.offset = 0, .length = 4}});
  CHECK((receipt.verdict == Verdict::complete) == is_given_back);
  CHECK(scene.out("p") == (is_given_back ? "qqqq" : "pppp") + std::string(96, 'p'));
  if (!is_given_back) {
    CHECK(receipt.entries.at(0).reason.starts_with(is_named));
  }
  CHECK(scene.partials() == (is_given_back ? 0 : 1));
}

TEST_CASE("an unload that another keeps from a name leaves it an input that nobody has changed",
          "[stage][merge][links]") {
  LiveScene scene;
  stdfs::create_hard_link(scene.config.root_dir + "/d/a", scene.config.root_dir + "/d/a2");
  scene.config.results_dir = scene.config.root_dir;
  scene.config.in_place = true;
  REQUIRE(scene.in({.names = {"d/a", "d/a2"}}).ok());
  scene.buffer.write("d/a", std::string(3000, 'q'));
  Claims claims(scene.config.root_dir + "/d");
  claims.make("a");
  CountedPauses pauses;
  scene.options.pauses = &pauses;
  const UnloadRequest both{.names = {"d/a", "d/a2"}};
  const Receipt held = scene.back(both);
  CHECK(action_of(held, "d/a") == Action::failed);
  claims.give_back("a");
  const Receipt receipt = scene.back(both);
  for (const auto* name : {"d/a", "d/a2"}) {
    const auto action = action_of(receipt, name);
    CHECK((action == Action::staged_out || action == Action::kept || action == Action::unchanged));
    CHECK(scene.out(name) == std::string(3000, 'q'));
  }
}
