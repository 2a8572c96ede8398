// Stage-out under faults: every PFS call fails once, and the process dies at every PFS call.

#include <catch2/catch_test_macros.hpp>

#include <sys/wait.h>

#include "fault_pfs.hpp"
#include "scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

/// A small scenario with one of each: files, a hole, a link, directories, and what is on the PFS already.
void prepare(Scene& scene, bool in_place) {
  scene.options.workers = 1;
  write_file(scene.root + "/d/input", "the input as it was");
  scene.resource("d");
  if (in_place) {
    scene.config.results_dir = scene.root;
    scene.config.in_place = true;
  }
  if (!scene.in().ok()) throw std::runtime_error("the scenario itself fails");
  scene.buffer.overwrite("d/input", "the input as the job left it");
  scene.buffer.put("e", S_IFDIR, {}, 0750);
  scene.buffer.put("e/big", S_IFREG, random_text(150'000, 1));
  scene.buffer.put("e/sparse", S_IFREG, "start");
  if (::truncate(scene.buffer.container(scene.buffer.nodes.at("e/sparse").ino).c_str(), 50'000) != 0) throw std::runtime_error("truncate");
  scene.buffer.put("e/link", S_IFLNK, "big");
  scene.buffer.put("replaced", S_IFREG, "new");
  write_file(scene.config.results_dir + "/replaced", "old");
  write_file(scene.config.results_dir + "/replaced.efs-partial", "of a killed stage-out");
}

/// Under every real name there is nothing, the old version or the whole new one.
bool whole(Scene& scene) {
  for (const auto& [path, node] : scene.buffer.nodes) {
    const std::string real = scene.config.results_dir + "/" + path;
    if (node.type != S_IFREG || !stdfs::exists(real)) continue;
    const std::string content = content_of(real);
    const bool old = (path == "replaced" && content == "old") || (path == "d/input" && content == "the input as it was");
    if (!old && content != scene.buffered(path)) return false;
  }
  return true;
}

bool claims_are_true(Scene& scene, const Receipt& receipt) {
  for (const auto& entry : receipt.entries) {
    if (entry.action != Action::staged_out) continue;
    const std::string real = scene.config.results_dir + "/" + entry.path;
    const auto& node = scene.buffer.nodes.at(entry.path);
    const auto attributes = stat_of(real);
    if ((attributes.st_mode & S_IFMT) != node.type || to_ns(attributes.st_mtim) != node.attributes.mtime) return false;
    if (node.type == S_IFREG && content_of(real) != scene.buffered(entry.path)) return false;
  }
  return true;
}

bool only_stale_partial(Scene& scene) {
  const std::string stale = scene.config.results_dir + "/replaced.efs-partial";
  const std::size_t ours = stdfs::exists(stale) && content_of(stale) == "of a killed stage-out" ? 1 : 0;
  return partials_below(scene.config.results_dir) == ours;
}

void every_call_fails(int code, bool in_place) {
  for (std::uint64_t n = 0;; ++n) {
    Scene scene;
    prepare(scene, in_place);
    const auto inputs = snapshot_of(scene.root);
    bool unlink_failed = false;
    FaultPfs pfs([&](std::uint64_t number, const std::string& call, const auto&) {
      if (number == n) unlink_failed = call == "unlink";
      return number == n ? code : 0;
    });
    const Receipt receipt = scene.out(pfs);
    INFO("call " << n << " fails with " << code << ": " << describe(receipt));
    REQUIRE(whole(scene));
    REQUIRE(claims_are_true(scene, receipt));
    // The stale partial is there as long as its file was not begun or could not be begun.
    const auto* replaced = entry_of(receipt, "replaced");
    const bool begun = receipt.reason.empty() && replaced->action == Action::staged_out;
    if (!unlink_failed) REQUIRE(partials_below(scene.config.results_dir) <= (begun ? 0U : 1U));
    if (!unlink_failed && !begun) REQUIRE(only_stale_partial(scene));
    if (!in_place) REQUIRE((snapshot_of(scene.root) == inputs));
    if (receipt.verdict != Verdict::complete) {
      REQUIRE(exit_code(receipt) != 0);
      const Receipt again = scene.out();
      INFO(describe(again));
      REQUIRE(again.verdict == Verdict::complete);
      REQUIRE(claims_are_true(scene, again));
      REQUIRE(partials_below(scene.config.results_dir) == 0);
    }
    if (pfs.calls() <= n) {
      REQUIRE(receipt.verdict == Verdict::complete);
      REQUIRE(n > 30);
      break;
    }
  }
}

}  // namespace

TEST_CASE("stage-out: every PFS call fails once", "[stage][out][faults]") {
  every_call_fails(EIO, false);
  every_call_fails(ENOSPC, false);
}

TEST_CASE("stage-out in place: every PFS call fails once", "[stage][out][faults]") {
  every_call_fails(EIO, true);
  every_call_fails(ENOSPC, true);
}

TEST_CASE("stage-out: killed at every PFS call; never half a file, and a rerun succeeds", "[stage][out][faults][killed]") {
  for (const bool in_place : {false, true}) {
    for (std::uint64_t n = 0;; ++n) {
      Scene scene;
      prepare(scene, in_place);
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        FaultPfs pfs([&](std::uint64_t number, const auto&, const auto&) {
          if (number == n) ::_exit(42);
          return 0;
        });
        ::_exit(exit_code(scene.out(pfs)));
      }
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      REQUIRE(WIFEXITED(status));
      INFO("killed at call " << n);
      REQUIRE(whole(scene));
      const Receipt receipt = scene.out();
      INFO(describe(receipt));
      REQUIRE(receipt.verdict == Verdict::complete);
      REQUIRE(claims_are_true(scene, receipt));
      REQUIRE(partials_below(scene.config.results_dir) == 0);
      if (WEXITSTATUS(status) == 0) break;
      REQUIRE(WEXITSTATUS(status) == 42);
    }
  }
}
