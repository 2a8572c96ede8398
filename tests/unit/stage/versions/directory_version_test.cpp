// Of a directory's attributes three versions: what came in, what the job made of them, and what somebody has on the PFS by now.
#include "stage/versions/directory_version.hpp"

#include <sys/xattr.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>

#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

TEST_CASE("a directory's version is another one where any of its attributes is", "[stage]") {
  const DirectoryAttributes one{.mode = 0755, .uid = 1, .gid = 2, .xattrs = {{"user.a", "x"}, {"user.b", ""}}};
  std::set<std::uint64_t> versions{directory_version(one)};
  auto other = one;
  other.mode = 02755, versions.insert(directory_version(other));
  other = one, other.uid = 2, versions.insert(directory_version(other));
  other = one, other.gid = 1, versions.insert(directory_version(other));
  other = one, other.xattrs.erase("user.b"), versions.insert(directory_version(other));
  other = one, other.xattrs["user.a"] = "y", versions.insert(directory_version(other));
  other = one, other.xattrs = {{"user.a", "xuser.b"}}, versions.insert(directory_version(other));
  CHECK(versions.size() == 7);
  other = one, other.xattrs["trusted.x"] = "seen by root", other.mode |= S_IFDIR;
  CHECK(directory_version(other) == directory_version(one));
  CHECK_FALSE(versions.contains(0));
}

TEST_CASE("of three versions of a directory one's change is taken, and two are a conflict", "[stage]") {
  CHECK(merge_directory(1, 2, 1) == DirectoryMerge::take_ours);
  CHECK(merge_directory(1, 1, 1) == DirectoryMerge::take_ours);
  CHECK(merge_directory(1, 2, 2) == DirectoryMerge::take_ours);
  CHECK(merge_directory(1, 1, 2) == DirectoryMerge::keep_theirs);
  CHECK(merge_directory(1, 2, 3) == DirectoryMerge::conflict);
  CHECK(merge_directory(0, 2, 3) == DirectoryMerge::take_ours);  // not known
}

namespace {

struct Shared : Scene {
  Shared() {
    config.results_dir = root;
    config.in_place = true;
    write_file(root + "/d/f", "f");
    REQUIRE(::chmod((root + "/d").c_str(), 0755) == 0);
    resource("d");
    REQUIRE(in().ok());
  }
  fs::StagedAttributes& ours() { return buffer.nodes.at("d").attributes; }
  void touched() { buffer.nodes.at("d").dirty = true; }
  mode_t theirs() const { return stat_of(root + "/d").st_mode & 07777U; }
  void set_theirs(mode_t mode) const { REQUIRE(::chmod((root + "/d").c_str(), mode) == 0); }
};

}  // namespace

TEST_CASE("stage-out: a directory's attributes that somebody has changed on the PFS since are not replaced in silence", "[stage][out][conflict]") {
  Shared scene;
  scene.touched();
  scene.ours().mode = 0700;
  SECTION("only the job has") {
    CHECK(scene.out().verdict == Verdict::complete);
    CHECK(scene.theirs() == 0700);
    SECTION("and again") {
      scene.ours().mode = 0711;
      CHECK(scene.out().verdict == Verdict::complete);
      CHECK(scene.theirs() == 0711);
    }
    SECTION("and somebody behind it") {
      scene.ours().mode = 0711;
      scene.set_theirs(0750);
      CHECK(action_of(scene.out(), "d") == Action::conflict);
      CHECK(scene.theirs() == 0750);
    }
  }
  SECTION("both") {
    scene.set_theirs(0750);
    const auto policy = GENERATE(config::OnConflict::fail, config::OnConflict::keep_both, config::OnConflict::overwrite);
    scene.config.on_conflict = policy;
    const Receipt receipt = scene.out();
    if (policy == config::OnConflict::overwrite) {
      CHECK(action_of(receipt, "d") == Action::staged_out);
      CHECK(entry_of(receipt, "d")->reason.starts_with("replaced attributes that changed on the PFS"));
      CHECK(scene.theirs() == 0700);
    } else {
      CHECK(action_of(receipt, "d") == Action::conflict);
      CHECK(entry_of(receipt, "d")->reason.contains("changed on the PFS since it was staged in"));
      CHECK(scene.theirs() == 0750);
      scene.set_theirs(0755);  // as it was
      CHECK(scene.out().verdict == Verdict::complete);
      CHECK(scene.theirs() == 0700);
    }
  }
  SECTION("both the same") {
    scene.set_theirs(0700);
    CHECK(scene.out().verdict == Verdict::complete);
  }
}

TEST_CASE("stage-out: of a directory that the job gave its times only, the PFS keeps what somebody has changed", "[stage][out][conflict]") {
  Shared scene;
  scene.touched();
  scene.ours().mtime = 1'600'000'000'000'000'000;
  scene.set_theirs(0750);
  const bool has_xattr = ::setxattr((scene.root + "/d").c_str(), "user.theirs", "x", 1, 0) == 0;
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.theirs() == 0750);
  CHECK(to_ns(stat_of(scene.root + "/d").st_mtim) == 1'600'000'000'000'000'000);
  if (has_xattr) CHECK(::getxattr((scene.root + "/d").c_str(), "user.theirs", nullptr, 0) == 1);
  scene.touched();  // again
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.theirs() == 0750);
}

TEST_CASE("stage-out: a directory that is let in to for a moment is not taken for somebody else's change", "[stage][out][conflict]") {
  Shared scene;
  scene.set_theirs(0555);
  scene.buffer.nodes.clear();
  REQUIRE(scene.in().ok());
  scene.touched();
  scene.ours().mode = 0500;
  scene.buffer.overwrite("d/f", "new");
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.theirs() == 0500);
  CHECK(content_of(scene.root + "/d/f") == "new");
}
