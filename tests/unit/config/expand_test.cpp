// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <map>
#include <string>

#include "config/load.hpp"

using namespace efs::config;

namespace {

// A process environment with exactly these variables.
Surroundings process_with(std::map<std::string, std::string> variables = {}) {
  Surroundings surroundings{.user = "ann", .home = "/home/ann", .node = "n7"};
  surroundings.variable =
      [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return surroundings;
}

const std::map<std::string, std::string> slurm{{"SLURM_JOB_ID", "4711"},
                                               {"SLURM_ARRAY_JOB_ID", "4700"},
                                               {"SLURM_ARRAY_TASK_ID", "11"},
                                               {"SLURM_JOB_USER", "sl-ann"},
                                               {"SLURM_JOB_NAME", "heat"},
                                               {"SLURMD_NODENAME", "n9"},
                                               {"SLURM_NODEID", "3"},
                                               {"SCRATCH", "/pfs/scratch"},
                                               {"A_1", "one"},
                                               {"EMPTY", ""},
                                               {"BELL", "a\ab"},
                                               {"DOLLAR", "$SCRATCH%j"}};

std::string text_with(const std::string& results) {
  return "global-settings:\n  root-dir: /r\n  mount-dir: /m\n  results-dir: \"" + results + "\"\n";
}

std::string expanded(const std::string& results,
                     const Surroundings& surroundings = process_with(slurm)) {
  const auto config = parse(text_with(results), "job.yaml", {}, surroundings);
  if (!config) {
    return "problem: " + to_string(config.error().front(), "job.yaml");
  }
  return config->results_dir;
}

// Checks that `results` as results-dir has one problem, at the position of the value, whose text
// contains `words`.
void check_refused(const std::string& results, const std::string& words,
                   const std::string& suggestion = "") {
  const auto config = parse(text_with(results), "job.yaml", {}, process_with(slurm));
  INFO(results);
  REQUIRE_FALSE(config);
  REQUIRE(config.error().size() == 1);
  const auto& problem = config.error().front();
  INFO(to_string(problem, "job.yaml"));
  CHECK(problem.line == 4);
  CHECK(problem.column == 16);
  CHECK(problem.text.contains(words));
  CHECK(problem.text.contains("'results-dir'"));
  CHECK(problem.suggestion.contains(suggestion));
}

}  // namespace

TEST_CASE("the directives of Slurm's file names") {
  CHECK(expanded("/o/%j") == "/o/4711");
  CHECK(expanded("/o/%A_%a") == "/o/4700_11");
  CHECK(expanded("/o/%u-%x-%N.d") == "/o/sl-ann-heat-n9.d");
  CHECK(expanded("/o/part.%t") == "/o/part.3");
  CHECK(expanded("/o/100%%") == "/o/100%");
  CHECK(expanded("/o/%%j") == "/o/%j");
}

TEST_CASE("user and node are known without Slurm") {
  CHECK(expanded("/o/%u/%N", process_with()) == "/o/ann/n7");
}

TEST_CASE("environment variables") {
  CHECK(expanded("$SCRATCH/o") == "/pfs/scratch/o");
  CHECK(expanded("${SCRATCH}o") == "/pfs/scratcho");
  CHECK(expanded("/o/$A_1.x") == "/o/one.x");
  CHECK(expanded("/o/${A_1}_2") == "/o/one_2");
  CHECK(expanded("/o/$$A_1") == "/o/$A_1");
}

TEST_CASE("values are not expanded again") {
  CHECK(expanded("/o/$DOLLAR") == "/o/$SCRATCH%j");
}

TEST_CASE("the home directory is the job's user's") {
  CHECK(expanded("~/o") == "/home/ann/o");
  CHECK(expanded("~") == "/home/ann");
  CHECK(expanded("/o/~") == "/o/~");
  CHECK(expanded("./~x").ends_with("/~x"));
}

TEST_CASE("what has no value is named, with the way out") {
  check_refused("/o/$NOSUCH/x", "the environment variable NOSUCH is not set", "$$");
  check_refused("/o/$EMPTY/x", "the environment variable EMPTY is empty");
  check_refused("/o/${SCRATCH", "a '$' without");
  check_refused("/o/$1", "a '$' without", "$$");
  check_refused("/o/$", "a '$' without");
  check_refused("/o/$BELL", "control character");
  check_refused("/o/%z", "unknown '%z'", "%%");
  check_refused("/o/%", "a single %", "%%");
  check_refused("~bob/x", "'~' with a name", "./~");
}

TEST_CASE("a directive without a value names the variable") {
  for (const auto& [directive, name] :
       std::map<std::string, std::string>{{"%j", "SLURM_JOB_ID"},
                                          {"%A", "SLURM_ARRAY_JOB_ID"},
                                          {"%a", "SLURM_ARRAY_TASK_ID"},
                                          {"%x", "SLURM_JOB_NAME"},
                                          {"%t", "SLURM_NODEID"}}) {
    const auto text = expanded("/o/" + directive, process_with());
    INFO(text);
    CHECK(text.starts_with("problem: job.yaml:4:16: " + directive + " has no value: " + name +
                           " is not set in 'results-dir'"));
  }
  CHECK(expanded("~/x", Surroundings{}).contains("'~' has no value"));
  CHECK(expanded("/%u", Surroundings{}).contains("SLURM_JOB_USER"));
}

TEST_CASE("a directive cannot lead to another directory") {
  for (const std::string name : {"../x", "a/b", "..", "."}) {
    INFO(name);
    CHECK(expanded("/o/%x", process_with({{"SLURM_JOB_NAME", name}}))
              .contains("which cannot be part of a name"));
  }
}

TEST_CASE("every path and the name are expanded, other values are not") {
  const auto config = parse(
      R"(global-settings: {root-dir: $SCRATCH, mount-dir: /m/%j, results-dir: ~/o, log-file: /l/%j,
  status-file: /s/%j,
  trace: /t/%j, access-log: /a/%j, name: run-%j}
backends: [[id: "d%j", type: NVRAM-NVML, daxfs: "/pmem/%u"]]
resources: [[path: "%x/*.dat"], [path: $SCRATCH/b]]
outputs: [[path: "out-%a"]]
)",
      "job.yaml", {}, process_with(slurm));
  if (!config) {
    FAIL(to_string(config.error().front(), "job.yaml"));
  }
  CHECK(config->root_dir == "/pfs/scratch");
  CHECK(config->mount_dir == "/m/4711");
  CHECK(config->results_dir == "/home/ann/o");
  CHECK(config->log_file == "/l/4711");
  CHECK(config->status_file == "/s/4711");
  CHECK(config->trace == "/t/4711");
  CHECK(config->access_log == "/a/4711");
  CHECK(config->name == "run-4711");
  CHECK(config->backends[0].id == "d%j");
  CHECK(config->backends[0].daxfs == "/pmem/sl-ann");
  CHECK(config->resources[0].path == "/pfs/scratch/heat/*.dat");
  CHECK(config->resources[0].is_glob);
  CHECK(config->resources[1].path == "/pfs/scratch/b");
  CHECK(config->outputs[0].pattern == "out-11");
}

TEST_CASE("problems behind an expanded value keep their places") {
  const auto config = parse(
      "global-settings: {root-dir: $SCRATCH, mount-dir: /m, results-dir: /o}\nresources:\n  - "
      "path: $SCRATCH/a\n  - path: $NOSUCH/b\n    flags: x\n  - path: /c\n",
      "job.yaml", {}, process_with(slurm));
  REQUIRE_FALSE(config);
  REQUIRE(config.error().size() == 3);
  CHECK((config.error()[0].line == 4 && config.error()[0].column == 11));
  CHECK((config.error()[1].line == 5 && config.error()[1].column == 12));
  CHECK((config.error()[2].line == 6 && config.error()[2].column == 11));
}

namespace {

// The same variables on the machine that submits the job.
Surroundings submission() {
  auto surroundings = process_with(slurm);
  surroundings.before_job = true;
  return surroundings;
}

JobConfig parsed(const std::string& text, const Surroundings& surroundings) {
  const auto config = parse(text, "job.yaml", {}, surroundings);
  if (!config) {
    FAIL(to_string(config.error().front(), "job.yaml") << " in " << text);
  }
  return *config;
}

}  // namespace

TEST_CASE("before the job, patterns of it stay") {
  const auto config = parsed(text_with("/o/%j-%A-%a-%x-%N-%t/%u/50%%/$SCRATCH"), submission());
  // a submission may run inside another job of the same user
  CHECK(config.results_dir == "/o/%j-%A-%a-%x-%N-%t/ann/50%/pfs/scratch");
  CHECK(config.results_open);
  CHECK_FALSE(config.root_open);
  CHECK_FALSE(parsed(text_with("/o/%u/50%%"), submission()).results_open);
  CHECK(parsed("global-settings: {root-dir: /r/%j, mount-dir: /m, in-place: true, name: run-%j}\n",
               submission())
            .results_open);
  CHECK_FALSE(parse(text_with("/o/%z"), "job.yaml", {}, submission()));
  CHECK_FALSE(parse(text_with("/o/$NOSUCH"), "job.yaml", {}, submission()));
}

TEST_CASE("what the nodes read is what was submitted, with the environment in it") {
  const std::string text = R"(# a job
resources:
  - path: "in.%N/*.dat"
    flags: persistent
  - path: $A_1.x
    distribute: partition
  - {list: "lists/%a"}

global-settings: [
  root-dir: $SCRATCH/%x,
  mount-dir: /m,
  results-dir: "~/50%%/$DOLLAR/\"%u\"",
  log-file: logs/%j,
  transfer-size: 1 MiB ]
backends:
  - id: "a: [b"
    capacity: 64 MiB
outputs: [[path: "out/$$x-%t", flags: temporary], [path: ./~y]]
)";
  const auto submitted = parsed(text, submission());
  const auto on_node = parsed(submitted.snapshot, process_with({{"SLURM_JOB_ID", "5"},
                                                                {"SLURM_JOB_NAME", "heat"},
                                                                {"SLURMD_NODENAME", "n9"},
                                                                {"SLURM_NODEID", "0"},
                                                                {"SLURM_ARRAY_TASK_ID", "4"}}));
  CHECK(on_node.root_dir == "/pfs/scratch/heat");
  CHECK(on_node.results_dir == "/home/ann/50%/$SCRATCH%j/\"ann\"");
  CHECK(on_node.log_file.ends_with("/logs/5"));
  CHECK(on_node.log_file == submitted.log_file.substr(0, submitted.log_file.size() - 2) + "5");
  CHECK(on_node.transfer_size == 1u << 20);
  REQUIRE(on_node.resources.size() == 3);
  CHECK(on_node.resources[0].path == "/pfs/scratch/heat/in.n9/*.dat");
  CHECK(on_node.resources[0].file_class == FileClass::persistent);
  CHECK(on_node.resources[1].path == "/pfs/scratch/heat/one.x");
  CHECK(on_node.resources[1].distribute == Distribute::partition);
  CHECK(on_node.resources[2].path == "/pfs/scratch/heat/lists/4");
  CHECK(on_node.resources[2].is_list);
  CHECK(on_node.backends[0].id == "a: [b");
  REQUIRE(on_node.outputs.size() == 2);
  CHECK(on_node.outputs[0].pattern == "out/$x-0");
  CHECK(on_node.outputs[1].pattern == "~y");
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(on_node.resources[i].line == submitted.resources[i].line);
  }
  const auto later = parse(submitted.snapshot, "job.yaml", {},
                           process_with({{"SLURM_JOB_ID", "5"},
                                         {"SLURM_JOB_NAME", "heat"},
                                         {"SLURMD_NODENAME", "n9"},
                                         {"SLURM_NODEID", "0"}}));
  REQUIRE_FALSE(later);
  CHECK(later.error().front().line == 7);  // the line of the list
}

TEST_CASE(
    "what the nodes read has values of the environment and of the command line, and none of the "
    "site") {
  auto surroundings = submission();
  surroundings.variable = [](const std::string& name) {
    return name == "EFS_WORKERS" ? std::optional<std::string>("3") : std::nullopt;
  };
  const auto submitted =
      parse(text_with("/o"), "job.yaml", {.results_dir = "/100%/$x"}, surroundings);
  REQUIRE(submitted);
  const auto on_node = parsed(submitted->snapshot, process_with());
  CHECK(on_node.workers == 3);
  CHECK(on_node.results_dir == "/100%/$x");
}

TEST_CASE("what no job file can hold is refused before the job") {
  auto surroundings = process_with({{"LATIN", "/p/\xe9"}});
  CHECK(parse(text_with("$LATIN/o"), "job.yaml", {}, surroundings));
  surroundings.before_job = true;
  const auto config = parse(text_with("$LATIN/o"), "job.yaml", {}, surroundings);
  REQUIRE_FALSE(config);
  CHECK(config.error().front().line == 4);
  CHECK(config.error().front().text.contains("which no job file can hold"));
}
