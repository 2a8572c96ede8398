// SPDX-License-Identifier: BSD-3-Clause
// Existing files in results-dir that are not the job's: a stage-out counts them, leaves them, or
// keeps both files.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "stage/versions/placed_names.hpp"
#include "support/placed.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

/// A good job's results, and a job that was cancelled early.
struct ExistingScene : Scene {
  explicit ExistingScene(config::Existing existing = config::Existing::replace) {
    config.existing = existing;
    stdfs::create_directory(top + "/meta");
    metadata = UniqueFd(::open((top + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    write_file(results + "/good", "a good job's");
    write_file(results + "/d/good", "a good job's");
    buffer.put("good", S_IFREG, "half");
    buffer.put("d", S_IFDIR);
    buffer.put("d/good", S_IFREG, "half");
    buffer.put("new", S_IFREG, "half");
    reopen();
  }

  /// As a later process of the store.
  void reopen() {
    if (!may_meet_others(config)) {
      return;
    }
    placed = efs::test::placed_names(metadata.get(), results);
    options.placed = placed.get();
  }

  std::string there(const std::string& path) const { return content_of(results + "/" + path); }

  UniqueFd metadata;
  std::unique_ptr<PlacedNames> placed;
};

}  // namespace

TEST_CASE("existing: replace counts what results replaced, and a retry does not count its own",
          "[stage][out][existing]") {
  ExistingScene scene;
  const Receipt receipt = scene.out();
  REQUIRE(receipt.verdict == Verdict::complete);
  CHECK(receipt.totals.replaced == 2);
  CHECK(entry_of(receipt, "good")->replaced);
  CHECK_FALSE(entry_of(receipt, "new")->replaced);
  CHECK(describe(receipt).contains("(2 replaced)"));
  CHECK(entry_of(to_json(receipt)["entries"].at(0))->replaced == receipt.entries.at(0).replaced);
  CHECK(to_json(receipt)["totals"]["replaced"] == 2);
  const Receipt again = scene.out();
  CHECK(again.totals.kept == 3);
  CHECK(again.totals.replaced == 0);
  CHECK_FALSE(describe(again).contains("replaced"));
}

TEST_CASE("existing: fail leaves what is there, and the results in the buffer",
          "[stage][out][existing]") {
  ExistingScene scene(config::Existing::fail);
  const Receipt receipt = scene.out();
  CHECK(receipt.verdict == Verdict::partial);
  CHECK(exit_code(receipt) == 3);
  for (const char* path : {"good", "d/good"}) {
    CHECK(action_of(receipt, path) == Action::conflict);
    CHECK(entry_of(receipt, path)->reason.contains("existing: fail"));
    CHECK(scene.there(path) == "a good job's");
  }
  CHECK(scene.there("new") == "half");
  CHECK(partials_below(scene.results) == 0);
  // The store's own exports are no obstacle: neither to the same process, nor to a later process
  // after the job has changed the file.
  scene.reopen();
  scene.buffer.overwrite("new", "whole");
  stdfs::remove(scene.results + "/good");
  const Receipt again = scene.out();
  CHECK(action_of(again, "new") == Action::staged_out);
  CHECK(scene.there("new") == "whole");
  CHECK(scene.there("good") == "half");
  CHECK(action_of(again, "d/good") == Action::conflict);
  CHECK(again.totals.replaced == 0);
}

TEST_CASE("existing: fail: what comes in between is not replaced either",
          "[stage][out][existing]") {
  ExistingScene scene(config::Existing::fail);
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  pfs.on_naming = [&](const std::string& name) {
    if (name == "new") {
      write_file(scene.results + "/new", "another job's");
    }
  };
  const Receipt receipt = scene.out(pfs);
  CHECK(action_of(receipt, "new") == Action::conflict);
  CHECK(scene.there("new") == "another job's");
  CHECK(partials_below(scene.results) == 0);
}

TEST_CASE("existing: fail: a result that was named when the stage-out was killed is its own",
          "[stage][out][existing]") {
  ExistingScene scene(config::Existing::fail);
  {
    FaultPfs dying([&](auto, const std::string& call, const std::string&) {
      return call == "fsync" && stdfs::exists(scene.results + "/new") ? EIO : 0;
    });
    CHECK(action_of(scene.out(dying), "new") == Action::failed);
  }
  REQUIRE(scene.there("new") == "half");
  scene.reopen();
  scene.buffer.overwrite("new", "whole");
  CHECK(action_of(scene.out(), "new") == Action::staged_out);
  CHECK(scene.there("new") == "whole");
}

TEST_CASE("existing: keep-both puts the result beside what is there, once",
          "[stage][out][existing]") {
  ExistingScene scene(config::Existing::keep_both);
  for (const auto action : {Action::staged_out, Action::kept}) {
    const Receipt receipt = scene.out();
    REQUIRE(receipt.verdict == Verdict::complete);
    CHECK(action_of(receipt, "good") == action);
    CHECK(entry_of(receipt, "d/good")->placed_as == "good.efs-job");
    CHECK(receipt.totals.replaced == 0);
    CHECK(scene.there("good") == "a good job's");
    CHECK(scene.there("good.efs-job") == "half");
    CHECK(scene.there("d/good.efs-job") == "half");
    CHECK(scene.there("new") == "half");
  }
}

TEST_CASE("existing: fail, in place: an input is the job's to replace, another's new file is not",
          "[stage][out][existing]") {
  Scene scene;
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  scene.config.existing = config::Existing::fail;
  write_file(scene.root + "/input", "one");
  scene.resource("input");
  REQUIRE(scene.in().ok());
  scene.buffer.overwrite("input", "two");
  scene.buffer.put("new", S_IFREG, "ours");
  write_file(scene.root + "/new", "theirs");
  const Receipt receipt = scene.out();
  CHECK(action_of(receipt, "input") == Action::staged_out);
  CHECK_FALSE(entry_of(receipt, "input")->replaced);
  CHECK(action_of(receipt, "new") == Action::conflict);
  CHECK(content_of(scene.root + "/new") == "theirs");
}
