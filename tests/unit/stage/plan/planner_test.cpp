// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/planner.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <sys/socket.h>

#include "support/short_of_memory.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

std::vector<std::string> paths_of(const Plan& plan) {
  std::vector<std::string> paths;
  for (const auto& entry : plan.entries) {
    paths.push_back(entry.path);
  }
  return paths;
}

}  // namespace

TEST_CASE("plan: files, directories and globs are expanded, with the parents, each once",
          "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/a/b/one.dat", "1");
  write_file(scene.root + "/a/b/two.dat", "22");
  write_file(scene.root + "/a/b/two.txt", "no");
  write_file(scene.root + "/tree/x/y", "333");
  write_file(scene.root + "/other", "no");
  stdfs::create_directory(scene.root + "/tree/empty");
  scene.resource("a/b/one.dat");
  scene.resource("a/*/*.dat");
  scene.resource("tree");
  scene.resource("tree/x");
  const Plan plan = scene.plan();
  CHECK(plan.problems.empty());
  CHECK(paths_of(plan) == std::vector<std::string>{"a", "a/b", "a/b/one.dat", "a/b/two.dat", "tree",
                                                   "tree/empty", "tree/x", "tree/x/y"});
  CHECK(plan.bytes == 6);
  CHECK(plan.files == 3);
  CHECK(plan.inodes == 8);
  CHECK(plan.entries[2].file_class == config::FileClass::persistent);
}

TEST_CASE("plan: ** reaches any depth, and a matching directory comes whole", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/p/q/run1/deep/file", "1");
  write_file(scene.root + "/p/q/r/s/x.h5", "1");
  scene.resource("**/*.h5");
  scene.resource("p/q/run?");
  CHECK(paths_of(scene.plan()) == std::vector<std::string>{"p", "p/q", "p/q/r", "p/q/r/s",
                                                           "p/q/r/s/x.h5", "p/q/run1",
                                                           "p/q/run1/deep", "p/q/run1/deep/file"});
}

TEST_CASE("plan: the root itself can be the resource", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/a/b", "1");
  scene.resource("");
  CHECK(paths_of(scene.plan()) == std::vector<std::string>{"a", "a/b"});
}

TEST_CASE("plan: attributes, origin and sparse sizes", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/f", "data");
  ::chmod((scene.root + "/f").c_str(), 0640);
  ::truncate((scene.root + "/f").c_str(), 10 << 20);
  set_mtime(scene.root + "/f", 1'234'567'890'123'456'789);
  scene.resource("f");
  const Plan plan = scene.plan(1U << 20U);  // the holes make it fit
  REQUIRE(plan.entries.size() == 1);
  CHECK(plan.problems.empty());
  const auto& entry = plan.entries[0];
  CHECK(entry.size == 10U << 20U);
  CHECK(entry.allocated <= 8192);
  CHECK(entry.attributes.mode == 0640);
  CHECK(entry.attributes.mtime == 1'234'567'890'123'456'789);
  CHECK(entry.origin.inode == stat_of(scene.root + "/f").st_ino);
  CHECK(entry.origin.ctime == to_ns(stat_of(scene.root + "/f").st_ctim));
}

TEST_CASE("plan: symbolic links are staged as links and never followed", "[stage][planner]") {
  Scene scene;
  write_file(scene.top + "/outside/secret", "1");
  write_file(scene.root + "/d/f", "1");
  stdfs::create_directory_symlink(scene.top + "/outside", scene.root + "/d/link");
  stdfs::create_symlink("nowhere", scene.root + "/d/dangling");
  scene.resource("d");
  scene.resource("d/link/secret");
  const Plan plan = scene.plan();
  CHECK(paths_of(plan) == std::vector<std::string>{"d", "d/dangling", "d/f", "d/link"});
  CHECK(plan.entries[1].target == "nowhere");
  CHECK(plan.entries[3].type == EntryType::symlink);
  CHECK(has_problem(plan, scene.root + "/d/link/secret", "symbolic link"));
}

TEST_CASE("plan: every problem is found, with its object and line", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/big", std::string(100000, 'x'));
  write_file(scene.root + "/secret", "x");
  ::chmod((scene.root + "/secret").c_str(), 0);  // else its owner need not ask
  write_file(scene.top + "/file", "x");
  scene.config.results_dir = scene.top + "/file/out";
  scene.resource("missing");
  scene.resource("also/missing");
  scene.resource("none*.dat");
  scene.resource("nodir/*.dat");
  scene.resource("big");
  scene.resource("secret");
  config::Resource outside;
  outside.path = "/elsewhere/x";
  scene.config.resources.push_back(outside);
  FaultPfs pfs([](auto, const std::string& call, const std::string& object) {
    return call == "access" && object == "secret" ? EACCES : 0;
  });
  const Plan plan = make_plan(scene.config, pfs, 65536).value();
  CHECK(has_problem(plan, scene.root + "/missing", "does not exist"));
  CHECK(has_problem(plan, scene.root + "/also/missing", "does not exist"));
  CHECK(has_problem(plan, scene.root + "/none*.dat", "no file matches"));
  CHECK(has_problem(plan, scene.root + "/nodir/*.dat", "no file matches"));
  CHECK(has_problem(plan, scene.root + "/secret", "not readable"));
  CHECK(has_problem(plan, "/elsewhere/x", "not below root-dir"));
  CHECK(has_problem(plan, scene.config.results_dir, "results-dir"));
  CHECK(has_problem(plan, scene.root, "the inputs need"));
  CHECK(plan.problems.size() == 8);
  CHECK(plan.problems[0].line == 7);
  CHECK(describe(plan).find("8 problems") != std::string::npos);
}

TEST_CASE("plan: a missing root is one problem", "[stage][planner]") {
  Scene scene;
  scene.config.root_dir = scene.top + "/absent";
  scene.resource("x");
  const Plan plan = scene.plan();
  CHECK(plan.problems.size() == 1);
  CHECK(has_problem(plan, scene.config.root_dir, "root-dir"));
}

TEST_CASE("plan: what the job itself writes is no input", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/a", "1");
  write_file(scene.root + "/logs/efs.log", "log");
  write_file(scene.root + "/access", "log");
  stdfs::create_directory_symlink(scene.root + "/logs", scene.top + "/way");
  scene.config.log_file = scene.top + "/way/efs.log";
  scene.config.access_log = scene.root + "/access";
  scene.config.trace = scene.root + "/not-there-yet";
  scene.resource("");
  const Plan plan = scene.plan();
  CHECK(plan.problems.empty());
  CHECK(paths_of(plan) == std::vector<std::string>{"a", "logs"});
  REQUIRE(plan.skipped.size() == 2);
  CHECK(describe(plan).contains("skipped: logs/efs.log (this job's log-file)"));
  CHECK(describe(plan).contains("skipped: access (this job's access-log)"));
  scene.resource("access");
  CHECK(
      has_problem(scene.plan(), scene.root + "/access", "is this job's access-log, not an input"));
}

TEST_CASE("plan: a file that the job replaces while it runs is known by its place",
          "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/logs/state.json", "{}");
  write_file(scene.root + "/logs/access.1", "old lines");
  write_file(scene.root + "/state.json", "a user's");
  stdfs::create_directory_symlink(scene.root + "/logs", scene.top + "/way");
  scene.config.status_file = scene.top + "/way/state.json";
  scene.config.access_log = scene.root + "/logs/access";
  scene.resource("");
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "lstat" && object == "state.json") {
      stdfs::rename(scene.root + "/logs/state.json", scene.root + "/other"),
          write_file(scene.root + "/logs/state.json", "{}");
    }
    return 0;
  });
  const Plan plan = make_plan(scene.config, pfs).value();
  CHECK(std::ranges::count(paths_of(plan), "state.json") == 1);
  CHECK(std::ranges::count(paths_of(plan), "logs/state.json") == 0);
  CHECK(std::ranges::count(paths_of(plan), "logs/access.1") == 0);
}

TEST_CASE("plan: receipts of efs are no inputs, but by their names", "[stage][planner]") {
  Scene scene;
  for (const char* name : {"/a", "/efs-receipt-job.json", "/efs-salvage-job.json",
                           "/efs-receipt-other.json", "/sub/efs-receipt-job.json"}) {
    write_file(scene.root + name, "{}");
  }
  scene.resource("");
  scene.resource("*.json");
  CHECK(paths_of(scene.plan()) ==
        std::vector<std::string>{"a", "efs-receipt-other.json", "sub", "sub/efs-receipt-job.json"});
  scene.config.in_place = true;
  scene.config.results_dir = scene.root;
  const Plan plan = scene.plan();
  CHECK(plan.problems.empty());
  CHECK(paths_of(plan) == std::vector<std::string>{"a", "sub", "sub/efs-receipt-job.json"});
  CHECK(describe(plan).contains("skipped: efs-receipt-job.json (this job's receipt)"));
  CHECK(describe(plan).contains("skipped: efs-receipt-other.json (a job's receipt)"));
  scene.resource("efs-receipt-job.json");
  CHECK(std::ranges::count(paths_of(scene.plan()), "efs-receipt-job.json") == 1);
  CHECK_FALSE(describe(scene.plan()).contains("skipped: efs-receipt-job.json"));
}

TEST_CASE("plan: stores, caches, the queue and the mount point of the job are no inputs",
          "[stage][planner]") {
  Scene scene;
  for (const char* name :
       {"/data/in", "/data/efs-1000-job/meta/journal", "/data/efs-x/f", "/tmp/efs-cache-1000/entry",
        "/queue/locks", "/mnt/f", "/efs-1000-job/f"}) {
    write_file(scene.root + name, "1");
  }
  scene.config.backends = {
      {.id = "disk", .type = config::BackendType::fsdax, .daxfs = scene.root + "/data"}};
  scene.config.cache = scene.root + "/tmp";
  scene.config.interleaving = scene.root + "/queue";
  stdfs::create_directory_symlink(scene.root, scene.top + "/alias");
  scene.config.mount_dir = scene.top + "/alias/mnt";
  scene.resource("");
  const std::vector<std::string> all{"data",         "data/efs-x",     "data/efs-x/f", "data/in",
                                     "efs-1000-job", "efs-1000-job/f", "tmp"};
  const Plan plan = scene.plan();
  CHECK(plan.problems.empty());
  CHECK(paths_of(plan) == all);
  for (const char* text :
       {"data/efs-1000-job (a store of efs)", "tmp/efs-cache-1000 (a cache of efs)",
        "queue (the queue of turns at the PFS)", "mnt (this job's mount-dir)"}) {
    CHECK(describe(plan).contains(text));
  }
  scene.config.resources.clear();
  scene.resource("**/*");
  CHECK(std::ranges::count(paths_of(scene.plan()), "data/efs-1000-job/meta/journal") == 0);
  scene.resource("data/efs-1000-job");
  CHECK(has_problem(scene.plan(), scene.root + "/data/efs-1000-job",
                    "is a store of efs, not an input"));
}

// In place they lie among the inputs.
TEST_CASE("plan: what a stage-out that was killed left of results is no input, but by its name",
          "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/d/f", "input");
  write_file(scene.root + "/d/f.efs-partial", "half of");
  stdfs::create_symlink("to", scene.root + "/d/link.efs-partial");
  write_file(scene.root + "/d/own.efs-partial/in-it", "a user's");
  write_file(scene.root + "/d/hidden.0123456789ab.efs-partial/in-it",
             "of a directory that is being filled");
  scene.resource("d");
  scene.resource("d/*");
  const Plan plan = scene.plan();
  CHECK(plan.problems.empty());
  CHECK(paths_of(plan) ==
        std::vector<std::string>{"d", "d/f", "d/own.efs-partial", "d/own.efs-partial/in-it"});
  CHECK(plan.skipped.size() == 3);
  CHECK(describe(plan).contains(
      "skipped: d/f.efs-partial (part of a result: a stage-out is under way, or was interrupted)"));
  scene.resource("d/f.efs-partial");
  CHECK(std::ranges::count(paths_of(scene.plan()), "d/f.efs-partial") == 1);
  scene.resource("d/hidden.0123456789ab.efs-partial");
  CHECK(std::ranges::count(paths_of(scene.plan()), "d/hidden.0123456789ab.efs-partial/in-it") == 1);
}

TEST_CASE("plan: FIFOs and sockets are skipped and listed", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/d/f", "1");
  ::mkfifo((scene.root + "/d/pipe").c_str(), 0600);
  scene.resource("d");
  const Plan plan = scene.plan();
  CHECK(plan.problems.empty());
  REQUIRE(plan.skipped.size() == 1);
  CHECK(plan.skipped[0].path == "d/pipe");
  CHECK(plan.skipped[0].reason == "FIFO");
}

TEST_CASE("plan: JSON", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/\xff", "12345");
  scene.resource("\xff");
  const auto json = to_json(scene.plan(1U << 20U));
  CHECK(json["format"] == "efs-plan-1");
  CHECK(json["bytes"] == 5);
  CHECK(json["ok"] == true);
  CHECK(json["entries"].size() == 1);
  CHECK(json["capacity"] == 1U << 20U);
}

TEST_CASE("plan before the job: what holds an input that only the nodes know has to be there",
          "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/sub/in.n1", "1");
  for (const char* path : {"in.%N", "sub/%N/x", "*/%t", "gone/%N"}) {
    scene.resource(path);
    scene.config.resources.back().open = true;
  }
  scene.resource("none");
  const Plan plan = scene.plan();
  CHECK(plan.entries.empty());
  CHECK(plan.problems.size() == 2);
  CHECK(has_problem(plan, scene.root + "/gone", "does not exist"));
  CHECK(has_problem(plan, scene.root + "/none", "does not exist"));
  REQUIRE(plan.skipped.size() == 3);
  CHECK(plan.skipped[0].path == "in.%N");
  CHECK(plan.skipped[0].reason.contains("when the job starts"));
}

TEST_CASE("plan before the job: directories with patterns", "[stage][planner]") {
  Scene scene;
  scene.resource("none");
  scene.config.root_dir = scene.root + "/%j/in";
  scene.config.resources.back().path = scene.config.root_dir + "/none";
  scene.config.root_open = true;
  scene.config.results_dir = scene.config.results_dir + "/%N";
  scene.config.results_open = true;
  CHECK(scene.plan().problems.empty());
  scene.config.root_dir = scene.root + "/gone/%j";
  CHECK(has_problem(scene.plan(), scene.config.root_dir, "root-dir cannot be opened"));
  write_file(scene.root + "/file", "1");
  scene.config.results_dir = scene.root + "/file/%N";
  CHECK(has_problem(scene.plan(), scene.config.results_dir, "not a directory"));
}

TEST_CASE("plan: inputs that appear elsewhere", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/set/run1/a", "1");
  write_file(scene.root + "/set/run1/sub/b", "22");
  write_file(scene.root + "/top/keep", "3");
  stdfs::permissions(scene.root + "/top", stdfs::perms::owner_all);
  const auto as = [&](const std::string& path, const std::string& place) {
    scene.resource(path);
    scene.config.resources.back().as = place;
  };
  as("set/run1", "top/in");
  as("set/run1/a", "new/name");
  Plan plan = scene.plan();
  CHECK(plan.problems.empty());
  CHECK(paths_of(plan) == std::vector<std::string>{"new", "new/name", "top", "top/in", "top/in/a",
                                                   "top/in/sub", "top/in/sub/b"});
  REQUIRE(plan.entries.size() == 7);
  CHECK(plan.entries[0].from().empty());  // as root-dir
  CHECK(plan.entries[1].from() == "set/run1/a");
  CHECK(plan.entries[2].from() == "top");
  CHECK(plan.entries[2].attributes.mode == 0700);
  CHECK(plan.entries[3].from() == "set/run1");
  CHECK(plan.entries[6].from() == "set/run1/sub/b");
  CHECK(plan.bytes == 4);
  scene.resource("top");
  plan = scene.plan();
  CHECK(plan.problems.empty());
  CHECK(plan.entries.size() == 8);  // both are there
  write_file(scene.root + "/top/in/a", "other");
  CHECK(has_problem(scene.plan(), scene.root + "/top/in/a",
                    "would be at top/in/a, and so would " + scene.root + "/set/run1/a"));
}

TEST_CASE("plan: what appears elsewhere has to have room there", "[stage][planner]") {
  Scene scene;
  write_file(scene.root + "/a", "1");
  write_file(scene.root + "/b", "1");
  scene.resource("a");
  scene.resource("b");
  scene.config.resources.back().as = "a/b";
  CHECK(has_problem(scene.plan(), scene.root + "/b",
                    "cannot be at a/b: " + scene.root + "/a is at a"));
  write_file(scene.root + "/c/d", "1");
  scene.config.resources.back().as = "c";
  scene.resource("c/d");
  CHECK(has_problem(scene.plan(), scene.root + "/c/d", scene.root + "/b is at c"));
  scene.config.resources.pop_back();
  scene.config.resources.back().path = scene.root + "/none";
  scene.config.resources.back().as = "x/y";
  CHECK(has_problem(scene.plan(), scene.root + "/none", "does not exist"));
}

TEST_CASE("plan: whichever allocation of memory fails, what is planned is all or nothing",
          "[stage][planner][memory]") {
  Scene scene;
  for (const char* name : {"/tree/some file with a long name", "/tree/below/x", "/globs/one.dat",
                           "/globs/two.dat", "/listed"}) {
    write_file(scene.root + name, "content");
  }
  stdfs::create_symlink("x", scene.root + "/tree/below/link");
  stdfs::create_hard_link(scene.root + "/listed", scene.root + "/tree/below/the same file");
  write_file(scene.root + "/list", "listed\n");
  for (const char* resource : {"tree", "globs/*.dat"}) {
    scene.resource(resource);
  }
  scene.config.resources.push_back({.path = scene.root + "/list", .is_list = true});
  const std::string expected = describe(scene.plan());
  const Rooms rooms{std::nullopt};
  for (const auto shortage : {efs::test::Shortage::once, efs::test::Shortage::for_good}) {
    const auto allocations =
        efs::test::each_allocation_fails(shortage, [&](const auto& short_of_memory) {
          std::optional<Result<Plan>> plan;
          short_of_memory([&] { plan = make_plan(scene.config, posix_pfs(), rooms); });
          if (plan && *plan) {
            REQUIRE(describe(**plan) == expected);
          } else if (plan) {
            REQUIRE(plan->error().code == ENOMEM);
          }
        });
    CHECK(allocations > 100);
  }
}
