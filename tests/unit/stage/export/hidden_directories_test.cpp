// SPDX-License-Identifier: BSD-3-Clause
// Directories that are filled before they are visible (ResultsTree::hide()).

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>

#include "stage/pfs/partial_name.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr int file_count = 6;

/// A directory with some files, a symbolic link and a second name, and one with too little for
/// that.
struct Filled : Scene {
  Filled() {
    options.workers = 1;
    options.partial_tag = ".0123456789ab";
    buffer.put("d", S_IFDIR, {}, 0750);
    for (int i = 0; i < file_count; ++i) {
      buffer.put(name(i), S_IFREG, "content of " + std::to_string(i), 0640);
    }
    buffer.put("d/link", S_IFLNK, "f0");
    buffer.link("d/f0", "d/second");
    buffer.put("few", S_IFDIR, {}, 0755);
    buffer.put("few/f", S_IFREG, "alone");
  }

  static std::string name(int i) { return "d/f" + std::to_string(i); }

  std::string hidden() const { return results + "/" + partial_name("d", options.partial_tag); }

  bool is_there(int i) const { return content_of(results + "/" + name(i)) == buffered(name(i)); }

  bool all_there() const {
    for (int i = 0; i < file_count; ++i) {
      if (!is_there(i)) {
        return false;
      }
    }
    return content_of(results + "/d/second") == buffered("d/f0") &&
           stdfs::read_symlink(results + "/d/link") == "f0" &&
           content_of(results + "/few/f") == "alone" && partials_below(results) == 0;
  }
};

void check_all_out(Filled& scene, PfsIo& pfs) {
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(scene.all_there());
}

}  // namespace

TEST_CASE("stage-out: a new directory is seen when it is full, by one rename",
          "[stage][out][hidden]") {
  Filled scene;
  int renames = 0;
  bool was_seen = false, was_full = false;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    renames += call == "rename";
    if (call == "rename" && object == "d") {
      was_seen = stdfs::exists(scene.results + "/d");
      was_full = true;
      for (int i = 0; i < file_count; ++i) {
        was_full = was_full && content_of(scene.hidden() + "/f" + std::to_string(i)) ==
                                   scene.buffered(Filled::name(i));
      }
    }
    return 0;
  });
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(receipt.totals.staged_out == file_count + 5);
  CHECK(!was_seen);
  CHECK(was_full);
  CHECK(renames == 3);  // of d, of the second name in it, and of few/f
  CHECK(scene.all_there());
  CHECK((stat_of(scene.results + "/d").st_mode & 07777U) == 0750);
  CHECK(to_ns(stat_of(scene.results + "/d").st_mtim) ==
        scene.buffer.nodes.at("d").attributes.mtime);
  CHECK((stat_of(scene.results + "/d/f1").st_mode & 07777U) == 0640);
}

TEST_CASE(
    "stage-out: a directory that is to be filled is durable before it is seen, and its name before "
    "that is reported",
    "[stage][out][hidden]") {
  Filled scene;
  scene.buffer.nodes.erase("few/f");
  scene.buffer.nodes.erase("few");
  scene.buffer.nodes.erase("d/second");
  scene.buffer.nodes.erase("d/link");
  std::string order;
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "write" || call == "fsync" || call == "rename") {
      order += call[0];
    }
    return 0;
  });
  REQUIRE(scene.out(pfs).verdict == Verdict::complete);
  // results-dir was made; behind the rename d and results-dir; d with its mode
  CHECK(order == "fwfwfwfwfwfwfrfff");
}

TEST_CASE(
    "stage-out: where somebody makes a directory that is being filled, his files stay and the "
    "job's come to them",
    "[stage][out][hidden]") {
  Filled scene;
  const std::string theirs = scene.results + "/d/theirs";
  bool is_done = false;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "rename" && object == "d" && !std::exchange(is_done, true)) {
      write_file(theirs, "his");
      write_file(scene.results + "/d/f1", "his, and older");
    }
    return 0;
  });
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(receipt.totals.staged_out == file_count + 5);
  CHECK(content_of(theirs) == "his");
  CHECK(scene.all_there());
}

TEST_CASE(
    "stage-out: a hidden directory gets its name on a PFS that cannot rename without replacing",
    "[stage][out][hidden]") {
  Filled scene;
  const int code = GENERATE(EINVAL, ENOSYS, EOPNOTSUPP);
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  pfs.no_replace_code = code;
  check_all_out(scene, pfs);
}

TEST_CASE("stage-out: where a hidden directory gets no name each file is written by itself",
          "[stage][out][hidden]") {
  Filled scene;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    return call == "rename" && object == "d" ? EIO : 0;
  });
  check_all_out(scene, pfs);
}

TEST_CASE(
    "stage-out: a file that could not be written whole is not in the directory when that is seen",
    "[stage][out][hidden]") {
  Filled scene;
  const bool is_removable = GENERATE(true, false);
  int writes = 0;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "write" && ++writes == 2) {
      return EIO;
    }
    return call == "unlink" && object == "f1" && !is_removable ? EIO : 0;
  });
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::partial);
  CHECK(action_of(receipt, "d/f1") == Action::failed);
  CHECK(!stdfs::exists(scene.results + "/d/f1"));
  for (const int i : {0, 2, 3, 4, 5}) {
    CHECK(scene.is_there(i));
  }
  CHECK(stdfs::exists(scene.hidden()) == !is_removable);
  CHECK(receipt.note.contains(partial_name("d", scene.options.partial_tag)) == !is_removable);
  scene.options.has_a_past = true;
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.all_there());
}

TEST_CASE("stage-out: what the PFS does not hold is not in the directory when that is seen",
          "[stage][out][hidden][verify]") {
  Filled scene;
  scene.config.verify = config::Verify::read_back;
  int drops = 0;
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  pfs.on_drop_cache = [&] {
    if (++drops == 3) {
      write_file(scene.hidden() + "/f2", "CONTENT of 2");
    }
  };
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.totals.failed == 1);
  CHECK(action_of(receipt, "d/f2") == Action::failed);
  CHECK(!stdfs::exists(scene.results + "/d/f2"));
  CHECK(scene.is_there(3));
  CHECK(partials_below(scene.results) == 0);
}

TEST_CASE("stage-out: a full PFS leaves of a directory what was whole", "[stage][out][hidden]") {
  Filled scene;
  int writes = 0;
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    return call == "write" && ++writes > 3 ? ENOSPC : 0;
  });
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::partial);
  for (int i = 0; i < file_count; ++i) {
    CHECK(scene.is_there(i) == (action_of(receipt, Filled::name(i)) == Action::staged_out));
  }
  CHECK(scene.is_there(2));
  CHECK(partials_below(scene.results) == 0);
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(scene.all_there());
}

TEST_CASE(
    "stage-out: what somebody puts into a hidden directory is not removed, and a result of that "
    "name takes its place as anywhere",
    "[stage][out][hidden]") {
  Filled scene;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "open" && object == "f3" && !stdfs::exists(scene.hidden() + "/his")) {
      write_file(scene.hidden() + "/his", "his");
      write_file(scene.hidden() + "/f3", "his, too");
    }
    return 0;
  });
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(content_of(scene.results + "/d/his") == "his");
  CHECK(scene.all_there());
}

TEST_CASE(
    "stage-out: of results whose names differ in case each is looked at behind the others, in the "
    "directory that is seen by then",
    "[stage][out][hidden]") {
  Filled scene;
  scene.buffer.put("d/F1", S_IFREG, "another one");
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  pfs.folds_case = GENERATE(true, false);
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK((receipt.verdict == Verdict::complete) == !pfs.folds_case);
  CHECK((action_of(receipt, "d/F1") == Action::conflict) !=
        (action_of(receipt, "d/F1") == Action::staged_out));
  const bool is_first_out = content_of(scene.results + "/d/f1") == scene.buffered("d/f1") ||
                            content_of(scene.results + "/d/F1") == scene.buffered("d/F1");
  CHECK(is_first_out);
}

TEST_CASE("stage-out: a directory is not hidden under a name that is too long to be known for ours",
          "[stage][out][hidden]") {
  Filled scene;
  const std::string longest(255, 'l');
  scene.buffer.put(longest, S_IFDIR, {}, 0755);
  for (int i = 0; i < file_count; ++i) {
    scene.buffer.put(longest + "/" + std::to_string(i), S_IFREG, "content");
  }
  std::set<std::string> made;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "mkdir") {
      made.insert(object);
    }
    return 0;
  });
  CHECK(scene.out(pfs).verdict == Verdict::complete);
  CHECK(made.contains(longest));
  CHECK(content_of(scene.results + "/" + longest + "/5") == "content");
  CHECK(scene.all_there());
}

TEST_CASE(
    "stage-out: no directory is hidden in place, nor where the store's partials have no name of "
    "their own",
    "[stage][out][hidden]") {
  Filled scene;
  const bool in_place = GENERATE(true, false);
  if (in_place) {
    scene.config.results_dir = scene.results = scene.root;
    scene.config.in_place = true;
  } else {
    scene.options.partial_tag.clear();
  }
  std::set<std::string> made;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "mkdir") {
      made.insert(object);
    }
    return 0;
  });
  CHECK(scene.out(pfs).verdict == Verdict::complete);
  CHECK(made.contains("d"));
  CHECK(scene.all_there());
}
