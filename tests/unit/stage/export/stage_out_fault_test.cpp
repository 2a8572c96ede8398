// SPDX-License-Identifier: BSD-3-Clause
// Stage-out under faults: every PFS call fails once, and the process dies at every PFS call.

#include <catch2/catch_test_macros.hpp>

#include <sys/xattr.h>

#include <algorithm>
#include <set>

#include "stage/copy/transfer.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_publisher.hpp"
#include "stage/pfs/partial_name.hpp"
#include "support/short_of_memory.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr const char* theirs = "as somebody else left it";

/// Inputs of a job with results in place: some are removed, one is changed on both sides.
void prepare_inputs(Scene& scene, bool in_place) {
  for (const char* name : {"input", "removed", "clash"}) {
    write_file(scene.root + "/d/" + name, std::string("the input as it was: ") + name);
  }
  write_file(scene.root + "/emptied/last", "the last one in it");
  ::setxattr((scene.root + "/d").c_str(), "user.old", "x", 1, 0);
  scene.resource("d");
  scene.resource("emptied");
  if (in_place) {
    scene.config.results_dir = scene.root;
    scene.config.in_place = true;
    scene.config.on_conflict = config::OnConflict::keep_both;
    scene.config.deletions = config::Deletions::propagate;
  }
  if (!scene.in().ok()) {
    throw std::runtime_error("the scenario itself fails");
  }
  scene.buffer.overwrite("d/input", "the input as the job left it");
  scene.buffer.nodes.at("d").xattrs.clear();
  scene.buffer.nodes.at("d").dirty = true;
  if (!in_place) {
    return;
  }
  const auto items = *scene.buffer.walk();
  for (const char* path : {"d/removed", "emptied", "emptied/last"}) {
    scene.buffer.gone_items.push_back(*std::ranges::find(items, path, &fs::WalkItem::path));
    scene.buffer.nodes.erase(path);
  }
  scene.buffer.overwrite("d/clash", "as the job left it");
  write_file(scene.root + "/d/clash", theirs);
}

/// One of each: files, a hole, two names of one file, extended attributes, other owners, links,
/// directories, and files that the PFS already has, whole, old, or as a partial.
void prepare(Scene& scene, bool in_place) {
  scene.options.workers = 1;
  prepare_inputs(scene, in_place);
  scene.buffer.put("e", S_IFDIR, {}, 0750);
  scene.buffer.put("e/big", S_IFREG, random_text(150'000, 1));
  scene.buffer.nodes.at("e/big").xattrs = {{"user.k", "value"}};
  scene.buffer.put("e/sparse", S_IFREG, "start", 0600);
  if (::truncate(scene.buffer.container(scene.buffer.nodes.at("e/sparse").ino).c_str(), 50'000) !=
      0) {
    throw std::runtime_error("truncate");
  }
  scene.buffer.put("e/link", S_IFLNK, "big");
  scene.buffer.put("e/theirs", S_IFREG, "another's", 0640);
  scene.buffer.put("e/their-link", S_IFLNK, "theirs");
  for (const char* path : {"e", "e/theirs", "e/their-link"}) {
    scene.buffer.nodes.at(path).attributes.gid = 12345;
  }
  scene.buffer.put("e/first", S_IFREG, "one file, two names");
  scene.buffer.link("e/first", "second");
  scene.buffer.put("replaced", S_IFREG, "new");
  scene.buffer.put("replaced-link", S_IFLNK, "new");
  scene.buffer.put("there", S_IFREG, "brought out by a stage-out that was killed");
  for (int i = 0; i < (in_place ? 0 : 17); ++i) {
    scene.buffer.put("many" + std::to_string(i), S_IFREG, "so many that one syncfs is for all");
  }
  const std::string& results = scene.config.results_dir;
  write_file(results + "/replaced", "old");
  write_file(results + "/" + partial_name("replaced", scene.options.partial_tag),
             "of a killed stage-out");
  stdfs::create_symlink("old", results + "/replaced-link");
  write_file(results + "/there", "brought out by a stage-out that was killed");
  ::chmod((results + "/there").c_str(), 0644);
  set_mtime(results + "/there", scene.buffer.nodes.at("there").attributes.mtime);
}

/// True if every real name is missing or has the old version or the whole new one, and another
/// user's version stays.
bool whole(Scene& scene) {
  const std::string& results = scene.config.results_dir;
  if (scene.config.in_place && content_of(results + "/d/clash") != theirs) {
    return false;
  }
  for (const auto& [path, node] : scene.buffer.nodes) {
    const std::string real =
        results + "/" + (path == "d/clash" && scene.config.in_place ? "d/clash.efs-job" : path);
    if (node.type != S_IFREG || !stdfs::exists(real)) {
      continue;
    }
    const std::string content = content_of(real);
    const bool old = (path == "replaced" && content == "old") ||
                     (path == "d/input" && content == "the input as it was: input");
    if (!old && content != scene.buffered(path)) {
      return false;
    }
  }
  const auto stays_or_goes = [&](const std::string& path, const std::string& content) {
    return !stdfs::exists(results + path) || content_of(results + path) == content;
  };
  return !scene.config.in_place || (stays_or_goes("/d/removed", "the input as it was: removed") &&
                                    stays_or_goes("/emptied/last", "the last one in it"));
}

bool claims_are_true(Scene& scene, const Receipt& receipt) {
  for (const auto& entry : receipt.entries) {
    const std::string path =
        entry.placed_as.empty()
            ? entry.path
            : (stdfs::path(entry.path).parent_path() / entry.placed_as).string();
    const std::string real = scene.config.results_dir + "/" + path;
    if (entry.action == Action::removed && stdfs::exists(real)) {
      return false;
    }
    if (entry.action != Action::staged_out && entry.action != Action::kept) {
      continue;
    }
    const auto& node = scene.buffer.nodes.at(entry.path);
    const auto attributes = stat_of(real);
    if ((attributes.st_mode & S_IFMT) != node.type ||
        to_ns(attributes.st_mtim) != node.attributes.mtime) {
      return false;
    }
    if (node.type == S_IFREG && content_of(real) != scene.buffered(entry.path)) {
      return false;
    }
    const bool without = entry.reason.contains("without ");
    for (const auto& [name, value] : node.xattrs) {
      std::string found(value.size(), '\0');
      if (!without && (::lgetxattr(real.c_str(), name.c_str(), found.data(), found.size()) !=
                           static_cast<ssize_t>(value.size()) ||
                       found != value)) {
        return false;
      }
    }
  }
  return true;
}

/// One of several nodes of a job. Some of its results exist on the PFS: old, identical from another
/// node, or different.
class OneOfSeveral {
 public:
  explicit OneOfSeveral(bool clashes) {
    prepare_inputs(scene, true);
    scene.options.workers = 1;
    scene.config.nodes = 2;
    const std::string& results = scene.config.results_dir;
    write_file(results + "/e/replaced", "old");
    stdfs::create_symlink("old", results + "/e/old-link");
    for (Nanoseconds& since = scene.config.merge_since;
         since <= to_ns(stat_of(results + "/e/old-link").st_ctim);) {
      since = pfs_now(results).value();
    }
    scene.buffer.put("e", S_IFDIR, {}, 0755);
    for (const char* name : {"new", "replaced", "same"}) {
      scene.buffer.put(std::string("e/") + name, S_IFREG, std::string(70'000, 's') + name, 0644);
    }
    for (const char* name : {"new-link", "old-link", "same-link"}) {
      scene.buffer.put(std::string("e/") + name, S_IFLNK, "new");
    }
    write_file(results + "/e/same", scene.buffered("e/same"));
    ::chmod((results + "/e/same").c_str(), 0644);
    stdfs::create_symlink("new", results + "/e/same-link");
    for (const char* name : {"own", "own-of-two"}) {
      bring_out_before(name);
    }
    if (!clashes) {
      return;
    }
    scene.buffer.put("e/clash", S_IFREG, "ours");
    write_file(results + "/e/clash", theirs);
  }

  Receipt out(PfsIo& pfs = posix_pfs()) {
    const auto merging = merging_publisher(scene.config.merge_since, own_);
    scene.options.publisher = merging.get();
    return scene.out(pfs);
  }

  /// As whole(); also, exports of another node stay or are replaced by identical files.
  bool whole() const {
    for (const auto& [path, node] : scene.buffer.nodes) {
      const std::string real = scene.config.results_dir + "/" + path;
      if (!path.starts_with("e/")) {
        continue;
      }
      const bool there = stdfs::exists(stdfs::symlink_status(real));
      const bool was_there = !path.starts_with("e/new");
      if (!there && was_there) {
        return false;
      }
      if (!there) {
        continue;
      }
      const std::string content =
          node.type == S_IFLNK ? stdfs::read_symlink(real).string() : content_of(real);
      const std::string whole = path == "e/clash"      ? theirs
                                : node.type == S_IFLNK ? "new"
                                                       : scene.buffered(path);
      const bool old = content == "old" &&
                       (path == "e/replaced" || path == "e/old-link" || path.starts_with("e/own"));
      if (content != whole && !old) {
        return false;
      }
    }
    return true;
  }

  Scene scene;

 private:
  /// This node's own export of an earlier stage-out; the job has changed the file since.
  /// "own-of-two" has got one more name on the PFS.
  void bring_out_before(const std::string& name) {
    const std::string there = scene.config.results_dir + "/e/" + name;
    write_file(there, "old");
    if (name == "own-of-two") {
      stdfs::create_hard_link(there, scene.top + "/one-more");
    }
    const auto st = stat_of(there);
    own_.push_back({.device = st.st_dev,
                    .inode = st.st_ino,
                    .size = 3,
                    .mtime = to_ns(st.st_mtim),
                    .ctime = to_ns(st.st_ctim)});
    scene.buffer.put("e/" + name, S_IFREG, "changed since", 0644);
  }

  std::vector<fs::Origin> own_;
};

/// True if the only partial is the one from before.
bool only_stale_partial(Scene& scene) {
  const std::string stale =
      scene.config.results_dir + "/" + partial_name("replaced", scene.options.partial_tag);
  const std::size_t ours =
      stdfs::exists(stale) && content_of(stale) == "of a killed stage-out" ? 1 : 0;
  return partials_below(scene.config.results_dir) == ours;
}

/// After the fault a second stage-out exports everything.
void require_rerun(Scene& scene) {
  const Receipt again = scene.out();
  INFO("again: " << describe(again));
  REQUIRE(again.verdict == Verdict::complete);
  REQUIRE(claims_are_true(scene, again));
  REQUIRE(partials_below(scene.config.results_dir) == 0);
}

std::set<std::string> paths_of(const Receipt& receipt) {
  std::set<std::string> paths;
  for (const auto& entry : receipt.entries) {
    paths.insert(entry.path);
  }
  return paths;
}

/// `prepare_scene` makes a scene whose results can all be exported.
template <typename Prepare>
std::uint64_t every_allocation_of_a_stage_out_fails(efs::test::Shortage shortage,
                                                    Prepare prepare_scene) {
  std::set<std::string> all;
  {
    Scene scene;
    prepare_scene(scene);
    all = paths_of(scene.out());
  }
  return efs::test::each_allocation_fails(shortage, [&](const auto& short_of_memory) {
    Scene scene;
    prepare_scene(scene);
    std::optional<Receipt> receipt;
    short_of_memory([&] { receipt = scene.out(); });
    INFO((receipt ? describe(*receipt) : "no receipt"));
    REQUIRE(whole(scene));
    if (receipt) {
      REQUIRE(claims_are_true(scene, *receipt));
    }
    // Without any memory a partial may stay until the next stage-out.
    if (shortage == efs::test::Shortage::once) {
      REQUIRE((partials_below(scene.config.results_dir) == 0 || only_stale_partial(scene)));
    }
    if (receipt && receipt->verdict == Verdict::complete) {
      REQUIRE(paths_of(*receipt) == all);
    } else {
      require_rerun(scene);
    }
  });
}

using Functions = std::set<std::string>;

/// Returns the functions that failed.
Functions every_call_fails(int code, bool in_place, const std::string& tag = {}) {
  std::size_t rounds = 0;
  const Functions failed = each_call_fails(code, [&](FaultPfs& pfs, const NthCall& chosen) {
    ++rounds;
    Scene scene;
    scene.options.partial_tag = tag;
    prepare(scene, in_place);
    const auto inputs = snapshot_of(scene.root);
    const Receipt receipt = scene.out(pfs);
    INFO("call " << chosen.number << " of " << chosen.function << " fails with " << code << ": "
                 << describe(receipt));
    REQUIRE(whole(scene));
    REQUIRE(claims_are_true(scene, receipt));
    // The stale partial stays until its file is begun.
    const auto* replaced = entry_of(receipt, "replaced");
    const bool begun = receipt.reason.empty() && replaced->action == Action::staged_out;
    const bool unlink_failed = chosen.function == "unlink";
    if (!unlink_failed) {
      REQUIRE(partials_below(scene.config.results_dir) <= (begun ? 0U : 1U));
    }
    if (!unlink_failed && !begun) {
      REQUIRE(only_stale_partial(scene));
    }
    if (!in_place) {
      REQUIRE((snapshot_of(scene.root) == inputs));
    }
    const auto calls = pfs.calls_of().find(chosen.function);
    if (calls == pfs.calls_of().end() || calls->second <= chosen.number) {
      REQUIRE(receipt.verdict == Verdict::complete);
    }
    if (receipt.verdict == Verdict::complete) {
      return;
    }
    REQUIRE(exit_code(receipt) != 0);
    require_rerun(scene);
  });
  REQUIRE(rounds > (efs::test::Sample(0).step == 1 ? 100 : 20));
  return failed;
}

/// The functions that every stage-out calls. (access, list and seek belong to a stage-in; no
/// transfer here calls statvfs.)
const Functions of_a_stage_out{
    "open",      "open_beneath", "list",    "read",      "write",      "truncate",       "fstat",
    "lstat",     "mkdir",        "symlink", "link",      "rename",     "unlink",         "xattrs",
    "set_xattr", "chmod",        "chown",   "set_times", "chown_name", "set_times_name", "fsync"};
const Functions of_a_merge{
    "birth",   "lstat",  "open",  "read", "readlink", "rename", "rename_noreplace",
    "symlink", "unlink", "xattrs"};

Functions with(Functions functions, const Functions& more) {
  functions.insert(more.begin(), more.end());
  return functions;
}

}  // namespace

TEST_CASE("stage-out: every PFS call fails once", "[stage][out][faults]") {
  for (const int code : {EIO, ENOSPC}) {
    CHECK(every_call_fails(code, false) == with(of_a_stage_out, {"syncfs", "readlink"}));
  }
}

TEST_CASE("stage-out with a directory that is hidden: every PFS call fails once",
          "[stage][out][faults][hidden]") {
  for (const int code : {EIO, ENOSPC}) {
    CHECK(every_call_fails(code, false, ".0123456789ab") ==
          with(of_a_stage_out, {"syncfs", "readlink", "rename_noreplace"}));
  }
}

TEST_CASE("stage-out in place: every PFS call fails once", "[stage][out][faults]") {
  for (const int code : {EIO, ENOSPC}) {
    CHECK(every_call_fails(code, true) ==
          with(of_a_stage_out, {"readlink", "rename_noreplace", "rmdir", "remove_xattr"}));
  }
}

TEST_CASE("stage-out of one of several nodes: every PFS call fails once, also those of a merge",
          "[stage][out][merge][faults]") {
  for (const bool clashes : {false, true}) {
    for (const int code : {EIO, ENOSPC}) {
      const Functions failed = each_call_fails(code, [&](FaultPfs& pfs, const NthCall& chosen) {
        OneOfSeveral node(clashes);
        const Receipt receipt = node.out(pfs);
        INFO("call " << chosen.number << " of " << chosen.function << " fails with " << code << ": "
                     << describe(receipt));
        REQUIRE(node.whole());
        REQUIRE(claims_are_true(node.scene, receipt));
        if (chosen.function != "unlink") {
          REQUIRE(partials_below(node.scene.config.results_dir) == 0);
        }
        if (clashes) {
          REQUIRE(receipt.verdict != Verdict::complete);
        }
        const auto calls = pfs.calls_of().find(chosen.function);
        if (calls == pfs.calls_of().end() || calls->second <= chosen.number) {
          REQUIRE((receipt.verdict == Verdict::complete) == !clashes);
        }
        if (receipt.verdict == Verdict::complete) {
          return;
        }
        REQUIRE(exit_code(receipt) != 0);
        const Receipt again = node.out();
        INFO("again: " << describe(again));
        REQUIRE((again.verdict == Verdict::complete) == !clashes);
        REQUIRE((node.whole() && claims_are_true(node.scene, again)));
        REQUIRE(partials_below(node.scene.config.results_dir) == 0);
      });
      CHECK(std::ranges::includes(failed, of_a_merge));
    }
  }
}

TEST_CASE("stage-out of one of several nodes: killed at every PFS call, also those of a merge",
          "[stage][out][merge][faults][killed]") {
  const auto seed = efs::test::seed();
  const efs::test::Sample sample(seed);
  for (std::uint64_t n = sample.first;; n += sample.step) {
    OneOfSeveral node(false);
    node.scene.options.partial_tag = ".0123456789ab";
    const auto code = killed_at_call(n, [&](PfsIo& pfs) { return exit_code(node.out(pfs)); });
    INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ": killed at call " << n);
    REQUIRE(node.whole());
    node.scene.options.has_a_past = true;
    const Receipt receipt = node.out();
    INFO(describe(receipt));
    REQUIRE(receipt.verdict == Verdict::complete);
    REQUIRE((node.whole() && claims_are_true(node.scene, receipt)));
    REQUIRE(partials_below(node.scene.config.results_dir) == 0);
    REQUIRE(code.value_or(0) == 0);
    if (code) {
      break;
    }
  }
}

TEST_CASE("stage-out: every allocation of memory fails, once and for good",
          "[stage][out][faults][memory]") {
  for (const auto shortage : {efs::test::Shortage::once, efs::test::Shortage::for_good}) {
    for (const bool in_place : {false, true}) {
      CHECK(every_allocation_of_a_stage_out_fails(
                shortage, [&](Scene& scene) { prepare(scene, in_place); }) > 100);
    }
  }
}

TEST_CASE(
    "stage-out with a directory that is hidden: every allocation of memory fails, once and for "
    "good",
    "[stage][out][faults][memory][hidden]") {
  const auto with_a_name = [](Scene& scene) {
    scene.options.partial_tag = ".0123456789ab";
    scene.options.has_a_past = true;
    prepare(scene, false);
  };
  for (const auto shortage : {efs::test::Shortage::once, efs::test::Shortage::for_good}) {
    CHECK(every_allocation_of_a_stage_out_fails(shortage, with_a_name) > 100);
  }
}

TEST_CASE("stage-out of a file that several threads copy: every allocation of memory fails once",
          "[stage][out][faults][memory]") {
  const std::string content(shared_from, 'l');
  CHECK(every_allocation_of_a_stage_out_fails(efs::test::Shortage::once, [&](Scene& scene) {
          scene.buffer.put("large", S_IFREG, content);
        }) > 30);
}

TEST_CASE("stage-out: killed at every PFS call; never half a file, and a rerun succeeds",
          "[stage][out][faults][killed]") {
  const auto seed = efs::test::seed();
  const efs::test::Sample sample(seed);
  for (const bool in_place : {false, true}) {
    for (std::uint64_t n = sample.first;; n += sample.step) {
      Scene scene;
      scene.options.partial_tag = ".0123456789ab";
      prepare(scene, in_place);
      const auto code = killed_at_call(n, [&](PfsIo& pfs) { return exit_code(scene.out(pfs)); });
      INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ": killed at call " << n);
      REQUIRE(whole(scene));
      scene.options.has_a_past = true;
      const Receipt receipt = scene.out();
      INFO(describe(receipt));
      REQUIRE(receipt.verdict == Verdict::complete);
      REQUIRE(claims_are_true(scene, receipt));
      REQUIRE(partials_below(scene.config.results_dir) == 0);
      REQUIRE(code.value_or(0) == 0);
      if (code) {
        break;
      }
    }
  }
}
