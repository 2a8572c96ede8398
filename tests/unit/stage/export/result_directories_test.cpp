// SPDX-License-Identifier: BSD-3-Clause
// Directories of a stage-out in place: whose attributes they have in the end.
#include "stage/export/result_directories.hpp"

#include <sys/xattr.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <memory>

#include "stage/pfs/partial_name.hpp"
#include "support/placed.hpp"
#include "unit/stage/counted_pauses.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

/// A job that has "d" and "d/f" of a PFS directory, in place, and remembers what it brings out.
struct Shared : Scene {
  explicit Shared(const std::string& elsewhere = {}) : metadata(top + "/meta") {
    if (!elsewhere.empty()) {
      config.root_dir = root = elsewhere;
    }
    config.results_dir = root;
    config.in_place = true;
    options.partial_tag = partial_tag_of(elsewhere.empty() ? "0123456789ab" : "ba9876543210");
    options.pauses = &pauses;
    stdfs::create_directory(metadata);
    open_placed();
    if (elsewhere.empty()) {
      write_file(root + "/d/f", "f"), set_theirs(0755);
    }
    resource("d");
    REQUIRE(in().ok());
  }

  /// As after a restart.
  void open_placed() {
    meta.reset(::open(metadata.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    placed = efs::test::placed_names(meta.get(), root);
    options.placed = placed.get();
  }

  FakeBuffer::Node& node(const std::string& path = "d") { return buffer.nodes.at(path); }

  void job_sets(mode_t mode) { node().attributes.mode = mode, node().dirty = true; }

  void set_theirs(mode_t mode, const std::string& path = "d") const {
    REQUIRE(::chmod((root + "/" + path).c_str(), mode) == 0);
  }

  mode_t theirs(const std::string& path = "d") const {
    return stat_of(root + "/" + path).st_mode & 07777U;
  }

  /// With what goes on at the PFS just before the first such call.
  Receipt out_with(const std::string& call, const std::function<void()>& meanwhile) {
    FaultPfs pfs(
        [&, done = false](std::uint64_t, const std::string& now, const std::string&) mutable {
          if (now == call && !std::exchange(done, true)) {
            meanwhile();
          }
          return 0;
        });
    return out(pfs);
  }

  Receipt out_failing(const std::string& call, int code) {
    FaultPfs pfs([&](std::uint64_t, const std::string& now, const std::string&) {
      return now == call ? code : 0;
    });
    return out(pfs);
  }

  const std::string& reason(const Receipt& receipt) const { return entry_of(receipt, "d")->reason; }

  std::string metadata;
  UniqueFd meta;
  std::unique_ptr<PlacedNames> placed;
  CountedPauses pauses;
};

}  // namespace

TEST_CASE(
    "stage-out: a directory's attributes that somebody has changed on the PFS since are not "
    "replaced in silence",
    "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0700);
  SECTION("only the job has") {
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == 0700);
    if (GENERATE(false, true)) {
      scene.open_placed();
    }
    SECTION("and again") {
      scene.job_sets(0711);
      CHECK(scene.out().verdict == Verdict::complete);
      CHECK(scene.theirs() == 0711);
    }
    SECTION("and somebody behind it") {
      scene.job_sets(0711);
      scene.set_theirs(0750);
      CHECK(action_of(scene.out(), "d") == Action::conflict);
      CHECK(scene.theirs() == 0750);
    }
  }
  SECTION("both") {
    scene.set_theirs(0750);
    const auto policy = GENERATE(config::OnConflict::fail, config::OnConflict::keep_both,
                                 config::OnConflict::overwrite);
    scene.config.on_conflict = policy;
    const Receipt receipt = scene.out();
    if (policy == config::OnConflict::overwrite) {
      CHECK(action_of(receipt, "d") == Action::staged_out);
      CHECK(scene.reason(receipt).starts_with("replaced attributes that changed on the PFS"));
      CHECK(scene.theirs() == 0700);
    } else {
      CHECK(action_of(receipt, "d") == Action::conflict);
      CHECK(scene.reason(receipt).contains(
          "changed on the PFS since it was staged in or made there"));
      CHECK(scene.theirs() == 0750);
      scene.set_theirs(0755);  // as it was
      CHECK(scene.out().verdict == Verdict::complete);
      CHECK(scene.theirs() == 0700);
    }
  }
  SECTION("both the same") {
    scene.set_theirs(0700);
    CHECK(scene.out().verdict == Verdict::complete);
    scene.job_sets(0711);
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == 0711);
  }
}

TEST_CASE(
    "stage-out: of two jobs that change one directory at the same time one brings it out, the "
    "other has a conflict",
    "[stage][out][conflict]") {
  Shared first;
  Shared second(first.root);
  first.job_sets(0700);
  second.job_sets(0711);
  Receipt meanwhile;
  const Receipt receipt = first.out_with("chmod", [&] { meanwhile = second.out(); });
  CHECK(action_of(receipt, "d") == Action::staged_out);
  CHECK(action_of(meanwhile, "d") == Action::failed);
  CHECK(second.reason(meanwhile).contains("another node or job has claimed this name"));
  CHECK(first.theirs() == 0700);
  CHECK(action_of(second.out(), "d") == Action::conflict);
  CHECK(first.theirs() == 0700);
  CHECK(partials_below(first.root) == 0);
}

TEST_CASE(
    "stage-out: of a directory that the job gave its times only, the PFS keeps what somebody has "
    "changed",
    "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0755);
  scene.node().attributes.mtime = 1'600'000'000'000'000'000;
  scene.set_theirs(0750);
  const std::string path = scene.root + "/d";
  const bool has_xattr = ::setxattr(path.c_str(), "user.theirs", "x", 1, 0) == 0;
  // Also while it is looked at.
  const Receipt receipt = scene.out_with("times", [&] { scene.set_theirs(0711); });
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(scene.reason(receipt).starts_with("its times only"));
  CHECK(scene.theirs() == 0711);
  CHECK(to_ns(stat_of(path).st_mtim) == 1'600'000'000'000'000'000);
  if (has_xattr) {
    CHECK(::getxattr(path.c_str(), "user.theirs", nullptr, 0) == 1);
  }
  scene.job_sets(0755);  // again
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.theirs() == 0711);
}

TEST_CASE(
    "stage-out: a directory that is let in to for a moment is not taken for somebody else's "
    "change, and his is not taken for ours",
    "[stage][out][conflict]") {
  Shared scene;
  scene.set_theirs(0555);
  scene.buffer.nodes.clear();
  REQUIRE(scene.in().ok());
  scene.job_sets(0500);
  scene.buffer.overwrite("d/f", "new");
  SECTION("nobody has changed it") {
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == 0500);
  }
  SECTION("somebody has, while it was open") {
    CHECK(action_of(scene.out_with("write", [&] { scene.set_theirs(0711); }), "d") ==
          Action::conflict);
    CHECK(scene.theirs() == 0711);
  }
  CHECK(content_of(scene.root + "/d/f") == "new");
}

TEST_CASE("stage-out: what a stage-out that failed halfway has made of a directory is the job's",
          "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0700);
  scene.node().xattrs["user.mine"] = "x";
  CHECK(action_of(scene.out_failing("chmod", EIO), "d") == Action::failed);
  if (GENERATE(false, true)) {
    scene.open_placed();
  }
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.theirs() == 0700);
}

TEST_CASE(
    "stage-out: a directory that is gone from the PFS is made again with its attributes, even if a "
    "stage-out was cut off meanwhile",
    "[stage][out]") {
  Shared scene;
  scene.node().attributes.mode = 01711;
  scene.buffer.overwrite("d/f", "new");
  scene.node().dirty = GENERATE(false, true);
  stdfs::remove_all(scene.root + "/d");
  if (GENERATE(false, true)) {
    CHECK(scene.out_failing("chmod", EIO).verdict != Verdict::complete);
    scene.buffer.overwrite("d/f", "newer");
    if (GENERATE(false, true)) {
      scene.open_placed();
    }
  }
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.theirs() == 01711);
}

TEST_CASE("stage-out: overwrite says so where the PFS does not let attributes be replaced",
          "[stage][out][conflict]") {
  Shared scene;
  scene.config.on_conflict = config::OnConflict::overwrite;
  scene.job_sets(0700);
  scene.set_theirs(0750);
  const Receipt receipt = scene.out_failing("chmod", EPERM);
  CHECK(action_of(receipt, "d") == Action::conflict);
  CHECK(scene.reason(receipt).contains("could not be replaced"));
  CHECK(scene.theirs() == 0750);
  // the next time, too
  CHECK(action_of(scene.out_failing("chmod", EPERM), "d") == Action::conflict);
}

TEST_CASE("stage-out: what somebody makes of a directory that was made and not finished yet is his",
          "[stage][out][conflict]") {
  Shared scene;
  const mode_t wanted = GENERATE(01711, 0700);  // mkdir gives the second at once
  scene.node().attributes.mode = wanted;
  scene.buffer.overwrite("d/f", "new");
  stdfs::remove_all(scene.root + "/d");
  const std::string file = scene.metadata + "/" + fs::placed_name;
  mode_t made = 0;
  CHECK(scene
            .out_with("rename",
                      [&] { made = scene.theirs(), stdfs::copy_file(file, file + ".then"); })
            .verdict == Verdict::complete);
  // As if it had been killed at that.
  scene.set_theirs(made);
  stdfs::rename(file + ".then", file);
  scene.open_placed();
  REQUIRE(scene.placed->directory({.name = "d", .own = "d"}).unfinished);
  SECTION("nobody") {
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == wanted);
    CHECK_FALSE(scene.placed->directory({.name = "d", .own = "d"}).unfinished);
  }
  SECTION("somebody") {
    scene.set_theirs(0770);
    CHECK(action_of(scene.out(), "d") == Action::conflict);
    CHECK(scene.theirs() == 0770);
    scene.set_theirs(made);  // as it was
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == wanted);
  }
}

TEST_CASE("stage-out: who only looks at a directory is not taken for one that was cut off at it",
          "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0700);
  scene.set_theirs(0750);
  bool interrupted = false;
  FaultPfs pfs([&](std::uint64_t, const std::string&, const std::string&) {
    interrupted = interrupted || scene.placed->directory({.name = "d", .own = "d"}).interrupted;
    return 0;
  });
  CHECK(action_of(scene.out(pfs), "d") == Action::conflict);
  CHECK_FALSE(interrupted);
}

TEST_CASE(
    "stage-out: what came in is no version of the job's any more once it has brought out another",
    "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0700);
  CHECK(scene.out().verdict == Verdict::complete);
  SECTION("somebody has put it back, the job has not changed it") {
    scene.set_theirs(0755);
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == 0755);
  }
  SECTION("the job has put it back, and somebody has changed it") {
    scene.set_theirs(0711);
    scene.job_sets(0755);
    CHECK(action_of(scene.out(), "d") == Action::conflict);
    CHECK(scene.theirs() == 0711);
  }
}

TEST_CASE(
    "stage-out: a directory that the job has put in the place of one that came in has its "
    "attributes",
    "[stage][out][conflict]") {
  Shared scene;
  // as record_came_in()
  REQUIRE(scene.placed->placed_directory({.name = "d", .own = "d"}, scene.node().origin->size));
  scene.node().origin.reset();
  scene.job_sets(0700);
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.theirs() == 0700);
}

TEST_CASE("stage-out: what somebody makes of a directory behind a failure is his",
          "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0700);
  CHECK(action_of(scene.out_failing("times", EIO), "d") == Action::failed);
  scene.set_theirs(0711);
  CHECK(action_of(scene.out(), "d") != Action::failed);
  CHECK(scene.theirs() == 0711);
}

TEST_CASE(
    "stage-out: a change right behind what the job's directory got is somebody else's the next "
    "time",
    "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0700);
  CHECK(scene.out_with("times", [&] { scene.set_theirs(0705); }).verdict == Verdict::complete);
  scene.job_sets(0711);
  CHECK(action_of(scene.out(), "d") == Action::conflict);
  CHECK(scene.theirs() == 0705);
}

TEST_CASE(
    "stage-out: of a directory that did not come in the PFS's attributes stay, unless they are the "
    "job's",
    "[stage][out][conflict]") {
  Shared scene;
  scene.buffer.put("new", S_IFDIR, "", 0700);
  SECTION("it was there") {
    stdfs::create_directory(scene.root + "/new");
    scene.set_theirs(0711, "new");
    const Receipt receipt = scene.out();
    CHECK(receipt.verdict == Verdict::complete);
    CHECK(entry_of(receipt, "new")->reason.starts_with("its times only"));
    CHECK(scene.theirs("new") == 0711);
  }
  SECTION("the job's was brought out") {
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs("new") == 0700);
    SECTION("and somebody has changed it since") {
      scene.set_theirs(0711, "new");
      CHECK(scene.out().verdict == Verdict::complete);
      CHECK(scene.theirs("new") == 0711);
      scene.node("new").attributes.mode = 0750;
      CHECK(action_of(scene.out(), "new") == Action::conflict);
    }
    SECTION("and the job has changed it") {
      scene.node("new").attributes.mode = 0750;
      CHECK(scene.out().verdict == Verdict::complete);
      CHECK(scene.theirs("new") == 0750);
    }
  }
}

TEST_CASE(
    "stage-out: in place a directory that is only on the way keeps the attributes that it has",
    "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0700);
  scene.buffer.overwrite("d/f", "new");
  scene.config.resources.clear();
  scene.resource("d", config::FileClass::temporary);
  scene.resource("d/f");
  scene.set_theirs(0711);
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.theirs() == 0711);
  CHECK(content_of(scene.root + "/d/f") == "new");
}

TEST_CASE(
    "stage-out: of a directory that was about to get the job's attributes when that was cut off, "
    "what somebody made of it stays",
    "[stage][out][conflict]") {
  Shared scene;
  scene.job_sets(0750);
  const DirectoryAttributes had{.mode = 0755, .uid = ::geteuid(), .gid = ::getegid()};
  REQUIRE(scene.placed->coming_directory({.name = "d", .own = "d"}, &had));
  scene.open_placed();
  for (const mode_t mode : {0755U, 0750U}) {  // nothing was done, or all
    scene.set_theirs(mode);
    REQUIRE(scene.placed->coming_directory({.name = "d", .own = "d"}, &had));
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == 0750);
  }
  REQUIRE(scene.placed->coming_directory({.name = "d", .own = "d"}, &had));
  scene.set_theirs(0711);
  CHECK(action_of(scene.out(), "d") == Action::conflict);
  CHECK(scene.theirs() == 0711);
}

TEST_CASE(
    "stage-out: attributes that may not survive a crash of the PFS are no version of the job's yet",
    "[stage][out]") {
  Shared scene;
  for (int i = 0; i < 20; ++i) {
    scene.buffer.put("n" + std::to_string(i), S_IFDIR, "", 0500);
  }
  scene.job_sets(0700);
  FaultPfs pfs([&](std::uint64_t, const std::string& call, const std::string&) {
    return call == "syncfs" || call == "fsync" ? EIO : 0;
  });
  CHECK(action_of(scene.out(pfs), "d") == Action::failed);
  scene.open_placed();
  SECTION("and are gone with it") {
    scene.set_theirs(0755);
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == 0700);
  }
  SECTION("and are there, to be replaced by the job") {
    scene.job_sets(0750);
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == 0750);
  }
  SECTION("and what somebody makes of them is his") {
    scene.set_theirs(0711);
    CHECK(action_of(scene.out(), "d") == Action::conflict);
    CHECK(scene.theirs() == 0711);
  }
  SECTION("also of one that it has made") {
    scene.set_theirs(0711, "n7");
    CHECK(action_of(scene.out(), "n7") == Action::conflict);
    CHECK(scene.theirs("n7") == 0711);
  }
  SECTION("one that it has made may have what it was made with again") {
    scene.set_theirs(0700, "n7");
    CHECK(action_of(scene.out(), "n7") == Action::staged_out);
    CHECK(scene.theirs("n7") == 0500);
  }
}
