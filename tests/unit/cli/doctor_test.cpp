// What efs doctor makes of a kernel's version, of Slurm's configuration, and of plugstack.conf.
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
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
  for (const char* bad : {"", "6", "6.", "six.nine", "6.x"}) CHECK(judge_kernel(bad).level == Level::warning);
}

TEST_CASE("what scontrol shows is read by keys", "[doctor]") {
  const auto config = parse_slurm_config(good);
  CHECK(config.at("PrologFlags") == "Alloc,DeferBatch");
  CHECK(config.at("TopologyParam").empty());
  CHECK(config.at("BatchStartTimeout") == "7200 sec");
}

TEST_CASE("settings of Slurm that lose jobs or drain nodes are found", "[doctor]") {
  CHECK(std::ranges::all_of(judge(good), [](const Finding& f) { return f.level == Level::ok; }));
  CHECK(level_of(judge(good, "Alloc,DeferBatch", "Alloc"), "PrologFlags") == Level::problem);
  CHECK(level_of(judge(good, "Alloc,DeferBatch", "AllocX,DeferBatch"), "PrologFlags") == Level::problem);
  CHECK(level_of(judge(good, "Alloc,DeferBatch", "(null)"), "PrologFlags") == Level::problem);
  CHECK(level_of(judge(good, "Alloc,DeferBatch", "Alloc,Contain,DeferBatch"), "PrologFlags") == Level::ok);
  CHECK(level_of(judge(good, "7200 sec", "10 sec"), "BatchStartTimeout") == Level::problem);
  CHECK(level_of(judge(good, "7200 sec", "600 sec"), "BatchStartTimeout") == Level::warning);
  CHECK(level_of(judge(good, "65534", "300 sec"), "PrologEpilogTimeout") == Level::problem);
  CHECK(level_of(judge(good, "65534", "86400 sec"), "PrologEpilogTimeout") == Level::ok);
  CHECK(level_of(judge(good, "StepTimeout   = 60", "StepTimeout   = 20"), "UnkillableStepTimeout") == Level::warning);
  CHECK(level_of(judge(good, "root(0)", "slurm(64030)"), "SlurmdUser") == Level::problem);
  for (const auto& finding : judge("")) CHECK_FALSE(finding.text.empty());
}

TEST_CASE("the plugin's line is found where it is included", "[doctor]") {
  const efs::test::TempDirectory directory;
  const std::string top = directory.path() + "/plugstack.conf";
  std::filesystem::create_directory(directory.path() + "/plugstack.d");
  std::ofstream(top) << "# required /old/spank_efs.so\noptional /usr/lib/other.so a=b\ninclude plugstack.d/*.conf\n";
  std::ofstream(directory.path() + "/plugstack.d/efs.conf") << "required /usr/lib/spank_efs.so efs=/usr/bin/efs shared=/pfs/x # here\n";
  const PluginLine line = find_plugin_line(top);
  CHECK(line.required);
  CHECK(line.plugin == "/usr/lib/spank_efs.so");
  CHECK(line.arguments == std::map<std::string, std::string>{{"efs", "/usr/bin/efs"}, {"shared", "/pfs/x"}});
  std::ofstream(directory.path() + "/plugstack.d/efs.conf") << "include " << top << "\n";  // a circle ends
  CHECK(find_plugin_line(top).plugin.empty());
  CHECK(find_plugin_line(directory.path() + "/none").plugin.empty());
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

}  // namespace
