// SPDX-License-Identifier: BSD-3-Clause
#include "record/job_file.hpp"

#include <catch2/catch_test_macros.hpp>

#include "config/yaml_tree.hpp"

namespace efs::record {

using config::read_yaml;
using config::YamlNode;

namespace {

Run a_run() {
  return {.job_file = "job.yaml",
          .command = {"./solve", "/pfs/run/in", "it's"},
          .directory = "/lustre/run/sub dir",
          .root_dir = "/pfs/run",
          .root = "/lustre/run"};
}

// The value of a key; an empty node if there is none.
YamlNode value_of(const YamlNode& map, const std::string& key) {
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
    if (map.items[i].text == key) {
      return map.items[i + 1];
    }
  }
  return {};
}

YamlNode read(const std::string& text) {
  const auto document = read_yaml(text);
  REQUIRE(document);
  return *document;
}

}  // namespace

TEST_CASE("record: the job file has the paths that it is given", "[record]") {
  const std::vector<Resource> resources{{.path = "in", .files = 2, .bytes = 2048},
                                        {.path = "a\nb \"c\" $x %j # no", .note = "a reason"},
                                        {.path = "~"},
                                        {.path = "far", .follow = true},
                                        {.path = "gone", .is_gone = true}};
  const std::vector<Rule> rules{{.path = "out", .inputs = true},
                                {.path = "**/x", .is_temporary = true}};
  const std::string text = write_job_file(a_run(), {}, resources, rules);
  const YamlNode document = read(text);
  const YamlNode settings = value_of(document, "global-settings");
  CHECK(value_of(settings, "root-dir").text == "/pfs/run");
  CHECK(value_of(settings, "mount-dir").text == "/tmp/efs-run");
  CHECK(value_of(settings, "results-dir").text == "/pfs/run-results");
  const YamlNode in = value_of(document, "resources");
  REQUIRE(in.items.size() == 4);
  CHECK(value_of(in.items[0], "path").text == "in");
  CHECK(value_of(in.items[1], "path").text == "a\nb \"c\" $$x %%j # no");
  CHECK(value_of(in.items[2], "path").text == "./~");
  CHECK(value_of(in.items[3], "follow").text == "true");
  const YamlNode out = value_of(document, "outputs");
  REQUIRE(out.items.size() == 3);
  CHECK(value_of(out.items[0], "inputs").text == "true");
  CHECK(value_of(out.items[1], "flags").text == "temporary");
  CHECK(value_of(out.items[2], "path").text == "**");
  CHECK(text.contains("  # - path: gone"));
  CHECK(text.contains("# 2 files, 2 KiB"));
}

TEST_CASE("record: the job file of a program without files is valid", "[record]") {
  const std::string text = write_job_file(a_run(), {}, {}, {});
  CHECK(value_of(read(text), "resources").items.empty());
  CHECK_FALSE(text.contains("FAILED"));
  CHECK_FALSE(text.contains("NOT COMPLETE"));
}

TEST_CASE("record: the head says what is wrong", "[record]") {
  Run run = a_run();
  run.exit_code = 3;
  run.lost = 5;
  const std::string text = write_job_file(run, {}, {}, {});
  CHECK(text.contains("# THE PROGRAM FAILED (exit status 3)"));
  CHECK(text.contains("# THE RECORDING IS NOT COMPLETE"));
  run.command = {"a\nglobal-settings: x"};
  (void)read(write_job_file(run, {}, {}, {}));
}

TEST_CASE("record: the command runs on the mount", "[record]") {
  Run run = a_run();
  CHECK(command_on_mount(run) ==
        std::vector<std::string>{"sh", "-c", "cd \"$EFS_MOUNT\"'/sub dir' && exec \"$@\"", "sh",
                                 "./solve", "/tmp/efs-run/in", "it's"});
  run.directory = "/home/u";
  run.command = {"/lustre/run/solve", "/pfs/running", "--in=/pfs/run/a=b", "x=y"};
  CHECK(command_on_mount(run) == std::vector<std::string>{"/tmp/efs-run/solve", "/pfs/running",
                                                          "--in=/tmp/efs-run/a=b", "x=y"});
  run.root_dir = "/tmp/efs-x y/x y";
  CHECK(mount_dir_of(run) == "/tmp/efs-x-y");
  run.root_dir = "/tmp/efs-a/a";
  CHECK(mount_dir_of(run) == "/tmp/efs-a-job");
}

TEST_CASE("record: sizes give a capacity, names are listed up to a bound", "[record]") {
  Summary summary;
  summary.results = {{.path = "r", .bytes = 300u << 20}};
  summary.temporaries = {{.path = "t", .bytes = 100u << 20}};
  for (int n = 0; n < 30; ++n) {
    summary.outside_read.push_back("/home/u/file" + std::to_string(n));
  }
  summary.outside_read.push_back("/opt/one");
  const std::string text =
      write_job_file(a_run(), summary, {{.path = "in", .bytes = 400u << 20}}, {});
  CHECK(text.contains("inputs 400 MiB, results 300 MiB, temporary files 100 MiB"));
  CHECK(text.contains("capacity: 1000 MiB"));
  CHECK(text.contains("#   t\n"));
  CHECK(text.contains("#   /home/u: 30 files\n#   /opt/one\n"));
}

}  // namespace efs::record
