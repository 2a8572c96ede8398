// SPDX-License-Identifier: BSD-3-Clause
// Removes from the PFS the inputs that the job removed.
#include "stage/export/deletions.hpp"

#include <catch2/catch_test_macros.hpp>

#include "stage/export/removed_inputs.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_publisher.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

struct Removing : Scene {
  Removing() {
    write_file(root + "/d/a", "a");
    write_file(root + "/d/b", "b");
    write_file(root + "/t/c", "c");
    resource("d");
    resource("t", config::FileClass::temporary);
    config.results_dir = root;
    config.in_place = true;
    config.deletions = config::Deletions::propagate;
    REQUIRE(in().ok());
  }

  /// As the job would.
  void remove(const std::string& path) {
    const auto items = *buffer.walk();
    buffer.gone_items.push_back(*std::ranges::find(items, path, &fs::WalkItem::path));
    buffer.nodes.erase(path);
    std::ranges::sort(buffer.gone_items, {}, &fs::WalkItem::path);
  }

  void rename(const std::string& from, const std::string& to) {
    auto node = buffer.nodes.at(from);
    remove(from);
    node.origin.reset();
    node.dirty = true;
    buffer.nodes[to] = node;
  }
};

}  // namespace

TEST_CASE("deletions: only declared ones, of persistent inputs", "[stage][out][deletions]") {
  Removing scene;
  scene.remove("d/a");
  scene.remove("t/c");
  SECTION("not declared") {
    scene.config.deletions = config::Deletions::ignore;
    const auto receipt = scene.out();
    CHECK(entry_of(receipt, "d/a") == nullptr);
    CHECK(stdfs::exists(scene.root + "/d/a"));
  }
  SECTION("declared") {
    const auto receipt = scene.out();
    CHECK(receipt.verdict == Verdict::complete);
    CHECK(receipt.totals.removed == 1);
    CHECK(action_of(receipt, "d/a") == Action::removed);
    CHECK_FALSE(stdfs::exists(scene.root + "/d/a"));
    CHECK(entry_of(receipt, "t/c") == nullptr);
    CHECK(stdfs::exists(scene.root + "/t/c"));
    CHECK(action_of(scene.out(), "d/a") == Action::removed);  // a second call: already removed
  }
  SECTION("in another results-dir nothing is ours") {
    scene.config.in_place = false;
    scene.config.results_dir = scene.results;
    write_file(scene.results + "/d/a", "an earlier job's");
    const auto receipt = scene.out();
    CHECK(entry_of(receipt, "d/a") == nullptr);
    CHECK(stdfs::exists(scene.results + "/d/a"));
    CHECK(stdfs::exists(scene.root + "/d/a"));
  }
}

TEST_CASE("deletions: what goes is no place for the job's version of another file",
          "[stage][out][deletions][conflict]") {
  Removing scene;
  scene.config.on_conflict = config::OnConflict::keep_both;
  scene.buffer.overwrite("d/a", "the job's");
  write_file(scene.root + "/d/a", "somebody else's");
  REQUIRE(scene.out().verdict == Verdict::complete);
  REQUIRE(content_of(scene.root + "/d/a.efs-job") == "the job's");
  // The next start imports the file again, and the job removes it.
  auto kept = scene.buffer.nodes.at("d/b");
  const auto st = stat_of(scene.root + "/d/a.efs-job");
  kept.origin = fs::Origin{.device = st.st_dev,
                           .inode = st.st_ino,
                           .size = static_cast<std::uint64_t>(st.st_size),
                           .mtime = to_ns(st.st_mtim),
                           .ctime = to_ns(st.st_ctim)};
  scene.buffer.nodes["d/a.efs-job"] = kept;
  scene.remove("d/a.efs-job");
  scene.buffer.overwrite("d/a", "the job's");
  const auto receipt = scene.out();
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(action_of(receipt, "d/a.efs-job") == Action::removed);
  REQUIRE(entry_of(receipt, "d/a")->placed_as == "a.efs-job.2");
  CHECK(content_of(scene.root + "/d/a.efs-job.2") == "the job's");
  CHECK(content_of(scene.root + "/d/a") == "somebody else's");
}

TEST_CASE("deletions: of lists only what they name", "[stage][out][deletions]") {
  Scene scene;
  write_file(scene.root + "/d/listed", "1");
  write_file(scene.root + "/whole/in/it", "2");
  write_file(scene.root + "/other", "3");
  write_file(scene.root + "/list", "d/listed\nwhole\n");
  config::Resource list;
  list.path = scene.root + "/list";
  list.is_list = true;
  list.file_class = config::FileClass::persistent;
  scene.config.resources.push_back(list);
  scene.config.deletions = config::Deletions::propagate;
  std::vector<fs::WalkItem> gone;
  for (const auto* path : {"d", "d/listed", "other", "whole", "whole/in/it"}) {
    fs::WalkItem item{.path = path, .pfs = {.origin = fs::Origin{}}};
    item.attributes.st_mode = item.path == "d" || item.path == "whole" ? S_IFDIR : S_IFREG;
    gone.push_back(item);
  }
  const auto paths = [&] {
    std::string text;
    for (const auto& item : removed_inputs(scene.config, gone)) {
      text += item.path + " ";
    }
    return text;
  };
  CHECK(paths() == "d/listed whole whole/in/it ");
  stdfs::remove(scene.root + "/list");
  CHECK(paths().empty());
}

TEST_CASE("deletions: a version that changed is a conflict", "[stage][out][deletions]") {
  Removing scene;
  scene.remove("d/a");
  write_file(scene.root + "/d/a", "theirs");
  SECTION("fail") {
    const auto receipt = scene.out();
    CHECK(action_of(receipt, "d/a") == Action::conflict);
    CHECK(receipt.verdict == Verdict::failed);
    CHECK(content_of(scene.root + "/d/a") == "theirs");
  }
  SECTION("a symbolic link or directory in its place is one, too") {
    ::unlink((scene.root + "/d/a").c_str());
    stdfs::create_symlink("b", scene.root + "/d/a");
    CHECK(action_of(scene.out(), "d/a") == Action::conflict);
    ::unlink((scene.root + "/d/a").c_str());
    stdfs::create_directory(scene.root + "/d/a");
    scene.config.on_conflict = config::OnConflict::overwrite;
    CHECK(action_of(scene.out(), "d/a") == Action::conflict);
    CHECK(stdfs::is_directory(scene.root + "/d/a"));
  }
  SECTION("keep-both") {
    scene.config.on_conflict = config::OnConflict::keep_both;
    const auto receipt = scene.out();
    CHECK(action_of(receipt, "d/a") == Action::skipped);
    CHECK(receipt.verdict == Verdict::complete);
    CHECK(content_of(scene.root + "/d/a") == "theirs");
  }
  SECTION("overwrite") {
    scene.config.on_conflict = config::OnConflict::overwrite;
    CHECK(action_of(scene.out(), "d/a") == Action::removed);
    CHECK_FALSE(stdfs::exists(scene.root + "/d/a"));
  }
}

TEST_CASE("deletions: what another node of the job brought out stays", "[stage][out][deletions]") {
  Removing scene;
  scene.remove("d/a");
  scene.config.nodes = 2;
  scene.config.on_conflict = config::OnConflict::overwrite;
  const auto since = pfs_now(scene.root);
  REQUIRE(since);
  scene.config.merge_since = *since;
  SECTION("it is newer than the job") {
    write_file(scene.root + "/d/a", "the other node's");
    CHECK(action_of(scene.out(), "d/a") == Action::conflict);
    CHECK(content_of(scene.root + "/d/a") == "the other node's");
  }
  SECTION("what is older was somebody else's, and on-conflict counts") {
    write_file(scene.root + "/d/a", "somebody's");
    scene.config.merge_since = to_ns(stat_of(scene.root + "/d/a").st_ctim) + 1;
    CHECK(action_of(scene.out(), "d/a") == Action::removed);
    CHECK_FALSE(stdfs::exists(scene.root + "/d/a"));
  }
  SECTION("it comes between the look and the removal") {
    bool looked = false;
    FaultPfs pfs([&](auto, const std::string& call, const auto&) {
      if (!looked && call == "symlink") {
        looked = true;
        write_file(scene.root + "/d/new", "the other node's");
        stdfs::rename(scene.root + "/d/new", scene.root + "/d/a");
      }
      return 0;
    });
    const auto merging = merging_publisher(*since);
    scene.options.publisher = merging.get();
    CHECK(action_of(scene.out(pfs), "d/a") == Action::conflict);
    CHECK(looked);
    CHECK(content_of(scene.root + "/d/a") == "the other node's");
  }
}

TEST_CASE("deletions: an input that was renamed to what is dropped stays",
          "[stage][out][deletions]") {
  Removing scene;
  scene.config.outputs.push_back(
      {.pattern = "out/**", .file_class = config::FileClass::persistent});
  scene.rename("d/a", "old");  // no output rule matches and no resource holds it: temporary
  const auto receipt = scene.out();
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(content_of(scene.root + "/d/a") == "a");
  CHECK(action_of(receipt, "d/a") == Action::skipped);
  CHECK(action_of(receipt, "old") == Action::dropped);
  SECTION("and goes when another name of it is back") {
    scene.buffer.nodes["out"] = {.ino = 1000,
                                 .type = S_IFDIR,
                                 .attributes = {.mode = 0755},
                                 .target = {},
                                 .dirty = true,
                                 .origin = {}};
    scene.buffer.nodes["out/a"] = scene.buffer.nodes.at("old");
    const auto again = scene.out();
    CHECK(action_of(again, "d/a") == Action::removed);
    CHECK(content_of(scene.root + "/out/a") == "a");
    CHECK_FALSE(stdfs::exists(scene.root + "/d/a"));
  }
}

TEST_CASE("deletions: never through a symbolic link, and only empty directories",
          "[stage][out][deletions]") {
  Removing scene;
  scene.remove("d/a");
  scene.remove("d/b");
  fs::WalkItem directory;
  directory.path = "d";
  directory.attributes.st_mode = S_IFDIR | 0755;
  directory.pfs.origin = fs::Origin{};
  scene.buffer.gone_items.insert(scene.buffer.gone_items.begin(), directory);
  scene.buffer.nodes.erase("d");
  SECTION("empty") {
    const auto receipt = scene.out();
    CHECK(receipt.totals.removed == 3);
    CHECK_FALSE(stdfs::exists(scene.root + "/d"));
  }
  SECTION("somebody's file is in it") {
    write_file(scene.root + "/d/theirs", "theirs");
    const auto receipt = scene.out();
    CHECK(action_of(receipt, "d") == Action::skipped);
    CHECK(receipt.verdict == Verdict::complete);
    CHECK(content_of(scene.root + "/d/theirs") == "theirs");
  }
  SECTION("somebody's link stands in its place") {
    stdfs::rename(scene.root + "/d", scene.top + "/elsewhere");
    stdfs::create_directory_symlink(scene.top + "/elsewhere", scene.root + "/d");
    (void)scene.out();
    CHECK(stdfs::exists(scene.top + "/elsewhere/a"));
    CHECK(stdfs::is_symlink(scene.root + "/d"));
  }
}

TEST_CASE("deletions: while a result is missing nothing goes, and a failure is one",
          "[stage][out][deletions]") {
  Removing scene;
  scene.remove("d/a");
  scene.buffer.put("d/new", S_IFREG, "new");
  SECTION("a result that cannot be written") {
    FaultPfs pfs(
        [](auto, const std::string& call, const auto&) { return call == "write" ? EIO : 0; });
    const auto receipt = scene.out(pfs);
    CHECK(action_of(receipt, "d/new") == Action::failed);
    CHECK(action_of(receipt, "d/a") == Action::not_saved);
    CHECK(stdfs::exists(scene.root + "/d/a"));
  }
  SECTION("one that cannot be removed") {
    FaultPfs pfs([](auto, const std::string& call, const auto& name) {
      return call == "unlink" && name == "a" ? EACCES : 0;
    });
    const auto receipt = scene.out(pfs);
    CHECK(action_of(receipt, "d/new") == Action::staged_out);
    CHECK(action_of(receipt, "d/a") == Action::failed);
    CHECK(receipt.verdict == Verdict::partial);
  }
  SECTION("one whose removal is not durable") {
    std::atomic<bool> removed = false;
    FaultPfs pfs([&](auto, const std::string& call, const auto& name) {
      if (call == "unlink" && name == "a") {
        removed = true;
      }
      return removed && (call == "fsync" || call == "syncfs") ? EIO : 0;
    });
    CHECK(action_of(scene.out(pfs), "d/a") == Action::failed);
  }
}
