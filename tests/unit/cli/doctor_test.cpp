// SPDX-License-Identifier: BSD-3-Clause
// The findings of efs doctor for kernel versions, Slurm configurations and plugstack.conf.
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <fstream>

#include "cli/doctor.hpp"
#include "support/temp.hpp"

namespace {

using namespace efs::cli;

Level level_of(const Findings& found, const std::string& what) {
  const auto at = std::ranges::find(found, what, &Finding::what);
  REQUIRE(at != found.end());
  return at->level;
}

constexpr const char* good = R"(Configuration data as of 2026-01-01T00:00:00
BatchStartTimeout       = 7200 sec
KillWait                = 30 sec
PlugStackConfig         = /etc/slurm/plugstack.conf
PrologEpilogTimeout     = 65534
PrologFlags             = Alloc,DeferBatch
SlurmdUser              = root(0)
TopologyParam           = (null)
UnkillableStepTimeout   = 60 sec
)";

Findings judge(std::string text, const std::string& from = "", const std::string& to = "") {
  if (!from.empty()) {
    REQUIRE(text.contains(from));
    text.replace(text.find(from), from.size(), to);
  }
  return judge_slurm_config(parse_slurm_config(text), 4200);
}

TEST_CASE("a kernel is judged by its version", "[doctor]") {
  CHECK(judge_kernel("6.9.0").level == Level::ok);
  CHECK(judge_kernel("6.12.41-amd64").level == Level::ok);
  CHECK(judge_kernel("7.0").level == Level::ok);
  CHECK(judge_kernel("6.8.12").level == Level::warning);
  CHECK(judge_kernel("5.14.0-362.el9.x86_64").level == Level::warning);
  CHECK(judge_kernel("4.18.0-553.el8_10").level == Level::problem);
  for (const char* bad : {"", "6", "6.", "six.nine", "6.x"}) {
    CHECK(judge_kernel(bad).level == Level::warning);
  }
}

TEST_CASE("what scontrol shows is read by keys", "[doctor]") {
  const auto config = parse_slurm_config(good);
  CHECK(config.at("PrologFlags") == "Alloc,DeferBatch");
  CHECK(config.at("TopologyParam").empty());
  CHECK(config.at("BatchStartTimeout") == "7200 sec");
}

TEST_CASE("a rule of systemd-tmpfiles that removes what dead instances left is found", "[doctor]") {
  const auto judge = [](const std::string& rules, const std::string& directory) {
    return judge_cleaning("store", directory, parse_cleaning(rules));
  };
  const std::string tmp = "# comment\nq /tmp 1777 root root 10d\n",
                    without_age = "D /tmp 1777 root root -\n";
  REQUIRE(judge(tmp, "/tmp/scratch").size() == 1);
  CHECK(judge(tmp, "/tmp/scratch").front().level == Level::warning);
  CHECK(judge(tmp, "/tmp/scratch").front().text.contains("older than 10d from /tmp"));
  CHECK(judge(tmp, "/tmp").size() == 1);
  CHECK(judge("e /local/*/scratch/ - - - 2w\n", "/local/a/scratch").size() == 1);
  CHECK(judge(tmp, "/tmpfiles").empty());
  CHECK(judge(without_age, "/tmp/scratch").empty());
  CHECK(judge("x /tmp/x 0 0 0 10d\n", "/tmp/x").empty());
  CHECK(judge(tmp + "x /tmp/scratch/efs-*\n", "/tmp/scratch").empty());
  CHECK(judge(tmp + "x /tmp/scratch\n", "/tmp/scratch").empty());
  CHECK(judge(tmp + "X /tmp/scratch\n", "/tmp/scratch").size() == 1);
}

TEST_CASE("what a logout takes away is found", "[doctor]") {
  CHECK(judge_logout("", false).empty());
  CHECK(judge_logout("[Login]\n#RemoveIPC=no\n", true).size() == 1);
  CHECK(judge_logout("[Login]\nRemoveIPC=no\n", true).empty());
  CHECK(judge_logout("RemoveIPC=no\nRemoveIPC=yes\n", true).size() == 1);
  CHECK(level_of(judge_logout("KillUserProcesses=yes\n", false), "logind, KillUserProcesses") ==
        Level::warning);
}

TEST_CASE("settings of Slurm that lose jobs or drain nodes are found", "[doctor]") {
  CHECK(std::ranges::all_of(judge(good), [](const Finding& f) { return f.level == Level::ok; }));
  CHECK(level_of(judge(good, "Alloc,DeferBatch", "Alloc"), "PrologFlags") == Level::problem);
  CHECK(level_of(judge(good, "Alloc,DeferBatch", "AllocX,DeferBatch"), "PrologFlags") ==
        Level::problem);
  CHECK(level_of(judge(good, "Alloc,DeferBatch", "(null)"), "PrologFlags") == Level::problem);
  CHECK(level_of(judge(good, "Alloc,DeferBatch", "Alloc,Contain,DeferBatch"), "PrologFlags") ==
        Level::ok);
  CHECK(level_of(judge(good, "7200 sec", "10 sec"), "BatchStartTimeout") == Level::problem);
  CHECK(level_of(judge(good, "7200 sec", "600 sec"), "BatchStartTimeout") == Level::warning);
  CHECK(level_of(judge(good, "65534", "300 sec"), "PrologEpilogTimeout") == Level::problem);
  CHECK(level_of(judge(good, "65534", "86400 sec"), "PrologEpilogTimeout") == Level::ok);
  CHECK(level_of(judge(good, "StepTimeout   = 60", "StepTimeout   = 20"),
                 "UnkillableStepTimeout") == Level::warning);
  CHECK(level_of(judge(good, "root(0)", "slurm(64030)"), "SlurmdUser") == Level::problem);
  for (const auto& finding : judge("")) {
    CHECK_FALSE(finding.text.empty());
  }
}

TEST_CASE("the plugin's line is found where it is included", "[doctor]") {
  const efs::test::TempDirectory directory;
  const std::string top = directory.path() + "/plugstack.conf";
  std::filesystem::create_directory(directory.path() + "/plugstack.d");
  std::ofstream(top) << "# required /old/spank_efs.so\noptional /usr/lib/other.so a=b\ninclude "
                        "plugstack.d/*.conf\n";
  std::ofstream(directory.path() + "/plugstack.d/efs.conf")
      << "required /usr/lib/spank_efs.so efs=/usr/bin/efs shared=/pfs/x # here\n";
  const PluginLine line = find_plugin_line(top);
  CHECK(line.required);
  CHECK(line.plugin == "/usr/lib/spank_efs.so");
  CHECK(line.arguments ==
        std::map<std::string, std::string>{{"efs", "/usr/bin/efs"}, {"shared", "/pfs/x"}});
  // a circular include ends
  std::ofstream(directory.path() + "/plugstack.d/efs.conf") << "include " << top << "\n";
  CHECK(find_plugin_line(top).plugin.empty());
  CHECK(find_plugin_line(directory.path() + "/none").plugin.empty());
  CHECK(judge_words(line).empty());
}

TEST_CASE("words of plugstack.conf that the plugin refuses are found", "[doctor]") {
  const auto judge_word = [](const std::string& word) {
    return judge_words(
        {.plugin = "spank_efs.so", .arguments = {}, .words = {"efs=/usr/bin/efs", word}});
  };
  for (const char* good_word :
       {"poll=5", "keep=no", "keep=24", "watch=60", "watch=no", "plan=yes", "output=no",
        "directives=no", "view=/efs", "shared=/pfs/%n", "stage-out=600"}) {
    CHECK(judge_word(good_word).empty());
  }
  for (const char* bad :
       {"pol=5", "shard=/pfs", "poll", "poll=", "poll=0", "poll=5s", "poll=-1", "keep=never",
        "plan=maybe", "output=1", "stage-out=no", "poll=99999999999", "Poll=5"}) {
    const auto found = judge_word(bad);
    REQUIRE(found.size() == 1);
    CHECK(found.front().level == Level::problem);
    CHECK(found.front().text.contains(bad));
  }
}

TEST_CASE("the words that efs doctor knows are those of the plugin", "[doctor]") {
  std::ifstream file(EFS_SOURCE_DIR "/slurm-plugin/site.c");
  const std::string source((std::istreambuf_iterator<char>(file)), {});
  std::size_t words = 0;
  for (auto at = source.find("{\""); at != std::string::npos;
       at = source.find("{\"", at + 2), ++words) {
    const std::string name = source.substr(at + 2, source.find('"', at + 2) - at - 2);
    const auto found =
        judge_words({.plugin = "spank_efs.so", .arguments = {}, .words = {name + "=?"}});
    CHECK((found.empty() || found.front().text.contains("the value of " + name)));
  }
  CHECK(words == 17);
}

TEST_CASE("a directory that others can change is not for root", "[doctor]") {
  const efs::test::TempDirectory directory;
  ::chmod(directory.path().c_str(), 0755);
  CHECK(judge_directory("x", directory.path(), false).level == Level::ok);
  ::chmod(directory.path().c_str(), 0777);
  CHECK(judge_directory("x", directory.path(), false).level == Level::problem);
  CHECK(judge_directory("x", directory.path() + "/none", false).level == Level::problem);
  CHECK(mount_of("/proc").type == "proc");
  CHECK(mount_of(directory.path() + "/none").type.empty());
}

TEST_CASE("doctor: a virtual machine that halts idle CPUs at once is named, with the setting") {
  CHECK(judge_idle("haltpoll", "0").text.contains("guest_halt_poll_ns"));
  CHECK_FALSE(judge_idle("haltpoll", "200000").text.contains("halts"));
  CHECK_FALSE(judge_idle("menu", "0").text.contains("halts"));
  CHECK_FALSE(judge_idle("", "").text.contains("halts"));
}

TEST_CASE("the switch of FUSE over io_uring is told, and nothing hangs on it", "[doctor]") {
  CHECK(judge_uring("Y").text == "is on");
  CHECK(judge_uring("1").text == "is on");
  CHECK(judge_uring("N").text.starts_with("is off"));
  CHECK(judge_uring("").text.contains("does not have it"));
  for (const char* state : {"Y", "N", ""}) {
    CHECK(judge_uring(state).level == Level::ok);
  }
}

Finding judge_on(const std::string& type, const std::string& options,
                 const efs::DurabilityProbe& probe, bool require_dax = false) {
  return judge_medium("store x", "/mnt/pmem/efs", {"/mnt/pmem", type, options}, probe, require_dax);
}

TEST_CASE("a store is judged by the answers of its file system", "[doctor]") {
  const auto dax = judge_on("ext4", "rw,relatime,dax=always", {.maps_persistent = true});
  CHECK(dax.level == Level::ok);
  CHECK(dax.text ==
        "/mnt/pmem/efs is on ext4 (/mnt/pmem), persistent memory: real DAX, made durable by "
        "flushes of the CPU's caches");
  // dax=inode with the attribute on the directory
  CHECK(judge_on("xfs", "rw,dax=inode", {.maps_persistent = true}, true).level == Level::ok);

  for (const char* options : {"rw,relatime", "rw,dax=never", "rw,dax=inode", "rw,nodax"}) {
    const auto page = judge_on("xfs", options, {});
    CHECK(page.level == Level::warning);
    CHECK(page.text.ends_with("page cache: durable by fsync or msync"));
    CHECK(page.advice.contains("mount -o dax"));
  }
  CHECK(judge_on("tmpfs", "rw,size=1g", {.memory = true})
            .text.ends_with("memory: volatile, lost at a restart of the node"));
}

TEST_CASE("the options of a mount prove no persistent memory", "[doctor]") {
  for (const char* options : {"rw,relatime,dax", "rw,dax=always", "rw,dax=always,noatime"}) {
    const auto found = judge_on("xfs", options, {});
    CHECK(found.level == Level::warning);
    CHECK(found.text.contains("page cache"));
    CHECK(found.text.contains("grants no MAP_SYNC"));
  }
}

TEST_CASE("a store that must have DAX and has none is a problem", "[doctor]") {
  for (const efs::DurabilityProbe& probe :
       {efs::DurabilityProbe{}, efs::DurabilityProbe{.memory = true},
        efs::DurabilityProbe{.problem = EROFS}}) {
    const auto found = judge_on("ext4", "rw,dax", probe, true);
    CHECK(found.level == Level::problem);
    CHECK(found.text.contains("no job starts"));
    CHECK(found.advice.contains("require-dax"));
  }
}

TEST_CASE("a store that cannot be probed counts as one without DAX", "[doctor]") {
  const auto found = judge_on("ext4", "rw,dax", {.problem = EROFS});
  CHECK(found.level == Level::warning);
  CHECK(found.text.contains("page cache"));
  CHECK(found.text.contains("Read-only file system"));
}

TEST_CASE("a store has the room that the disk or the caller's quota leaves", "[doctor]") {
  constexpr std::uint64_t gib = 1u << 30;
  const auto judge_with = [](std::uint64_t free, std::optional<std::uint64_t> quota,
                             std::optional<std::uint64_t> capacity) {
    return judge_room("store x", "/scratch", free, quota, capacity);
  };
  CHECK(judge_with(10 * gib, std::nullopt, 8 * gib).text == "10 GiB free in /scratch");
  CHECK(judge_with(10 * gib, 20 * gib, 8 * gib).text == "10 GiB free in /scratch");
  CHECK(judge_with(10 * gib, 9 * gib, 8 * gib).text == "9 GiB left by your quota in /scratch");
  CHECK(judge_with(10 * gib, 9 * gib, 8 * gib).level == Level::ok);
  CHECK(judge_with(10 * gib, 7 * gib, 8 * gib).level == Level::problem);
  CHECK(judge_with(10 * gib, 7 * gib, 8 * gib).text ==
        "7 GiB left by your quota in /scratch, and the capacity is 8 GiB");
  CHECK(judge_with(10 * gib, 7 * gib, 8 * gib).advice.starts_with("ask for more of it"));
  CHECK(judge_with(10 * gib, 0, std::nullopt).level == Level::problem);
  CHECK(judge_with(7 * gib, std::nullopt, 8 * gib).advice ==
        "free space there, or lower the capacity");
}

TEST_CASE("a unit of slurmd's that takes jobs' file systems along is found", "[doctor]") {
  for (const char* mode : {"control-group", "mixed"}) {
    CHECK(level_of(judge_slurmd_unit({{"LoadState", "loaded"}, {"KillMode", mode}}),
                   "slurmd.service") == Level::problem);
  }
  for (const char* mode : {"process", "none"}) {
    CHECK(level_of(judge_slurmd_unit({{"KillMode", mode}}), "slurmd.service") == Level::ok);
  }
  CHECK(judge_slurmd_unit({}).empty());
}

TEST_CASE("what a job of some memory gets without a capacity", "[doctor]") {
  constexpr std::uint64_t mebibyte = 1U << 20U;
  efs::config::JobConfig site;
  site.backends.push_back({.id = "dram"});
  const efs::MemoryBound plenty{.bytes = 9000 * mebibyte, .source = "/proc/meminfo"},
      scarce{.bytes = 100 * mebibyte, .source = "memory.max"};
  const Finding usual = judge_job_memory(500 * mebibyte, plenty, site);
  CHECK(usual.level == Level::ok);
  CHECK(usual.what == "a job of 500 MiB");
  CHECK(usual.text.starts_with("a DRAM store without a capacity has 250 MiB: 50% of its memory"));
  const Finding bound = judge_job_memory(500 * mebibyte, scarce, site);
  CHECK(bound.level == Level::warning);
  CHECK(
      bound.text.starts_with("a DRAM store without a capacity has 50 MiB: 50% of 100 MiB, which is "
                             "all that this node has for it (memory.max)"));
  CHECK(judge_job_memory(10 * mebibyte, plenty, site).level == Level::problem);
  site.memory_share = 20;
  site.backends.front().most_capacity = 64 * mebibyte;
  CHECK(judge_job_memory(200 * mebibyte, plenty, site)
            .text.starts_with("a DRAM store without a capacity has 40 MiB"));
  CHECK(judge_job_memory(500 * mebibyte, plenty, site)
            .text.starts_with("a DRAM store without a capacity has 64 MiB"));
}

TEST_CASE("what squeue says of a job is read by fields", "[doctor]") {
  const auto job = parse_slurm_job("1234|PENDING|Licenses|2026-11-22T20:00:00");
  REQUIRE(job);
  CHECK(job->id == 1234);
  CHECK(job->state == "PENDING");
  CHECK(job->reason == "Licenses");
  CHECK(job->start == "2026-11-22T20:00:00");
  CHECK(parse_slurm_job("7|RUNNING|None|N/A|more")->start == "N/A");
  for (const char* bad : {"", "x|PENDING|None|N/A", "7", "7|PENDING", "7|PENDING|None",
                          "|PENDING|None|N/A", "99999999999|PENDING|None|N/A"}) {
    CHECK_FALSE(parse_slurm_job(bad));
  }
}

}  // namespace
