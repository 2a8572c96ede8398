// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "config/load.hpp"

using namespace efs::config;

namespace {

const std::string ancestor = R"(## test configuration file
global-settings: [
    root-dir: "/pfs/run/",
    mount-dir: "/mnt/job/",
    results-dir: "/pfs/run/job42/",
    workers: "4",
    transfer-size: "128KiB",
]
backends: [
    [ id: "nvml://",
      type: "NVRAM-NVML",
      capacity: "6 GiB",
      daxfs: "/mnt/pmem/",
      segment-size: "64 MiB"
    ],
]
resources: [
    [ path: "input/", backend: "nvml:/", flags: "persistent" ],
    [ path: "/pfs/run/mesh/*.dat", backend: "nvml://" ],
]
)";

const std::string block = R"(global-settings:
  root-dir: /pfs/run
  mount-dir: /mnt/job
  results-dir: /pfs/run/job42
  workers: 4
  transfer-size: 128 KiB
backends:
  - id: nvml://
    type: NVRAM-NVML
    capacity: 6 GiB
    daxfs: /mnt/pmem
    segment-size: 64 MiB
resources:
  - path: input
    backend: nvml://
    flags: persistent
  - path: mesh/*.dat
)";

const std::string pfs_rules = R"(global-settings:
  root-dir: /pfs/run
  mount-dir: /mnt/job
  results-dir: /pfs/run/job42
  on-conflict: keep-both
  existing: fail
  results-group: project
  results-mode: 0660
  verify: read-back
  max-rate: 1.5 GB/s
  max-ops: 2000 /s
  retries: 0
resources:
  - path: late
  - path: early
    priority: 10
)";

void check_is_example(const JobConfig& config) {
  CHECK(config.name == "my-job");
  CHECK(config.source == "dir/my job.yaml");
  CHECK(config.root_dir == "/pfs/run");
  CHECK(config.mount_dir == "/mnt/job");
  CHECK(config.results_dir == "/pfs/run/job42");
  CHECK_FALSE(config.in_place);
  CHECK(config.log_file.empty());
  CHECK(config.workers == 4);
  CHECK(config.transfer_size == 128u << 10);
  REQUIRE(config.backends.size() == 1);
  CHECK(config.backends[0].id == "nvml://");
  CHECK(config.backends[0].type == BackendType::fsdax);
  CHECK(config.backends[0].capacity == 6ull << 30);
  CHECK(config.backends[0].daxfs == "/mnt/pmem");
  CHECK(config.backends[0].segment_size == 64u << 20);
  CHECK(config.backends[0].enforce == Enforce::advisory);
  CHECK(config.backends[0].huge_pages);
  REQUIRE(config.resources.size() == 2);
  CHECK(config.resources[0].path == "/pfs/run/input");
  CHECK(config.resources[0].backend == "nvml://");
  CHECK(config.resources[0].file_class == FileClass::persistent);
  CHECK_FALSE(config.resources[0].is_glob);
  CHECK(config.resources[1].path == "/pfs/run/mesh/*.dat");
  CHECK(config.resources[1].backend == "nvml://");
  CHECK(config.resources[1].file_class == FileClass::temporary);
  CHECK(config.resources[1].is_glob);
  CHECK(config.outputs.empty());
}

JobConfig parsed(const std::string& text, const Overrides& overrides = {},
                 const std::string& file = "job.yaml") {
  const auto config = parse(text, file, overrides);
  if (!config) {
    for (const auto& problem : config.error()) {
      UNSCOPED_INFO(to_string(problem, file));
    }
  }
  REQUIRE(config);
  return *config;
}

// A directory of the test's own, removed at its end.
struct TemporaryDirectory {
  std::filesystem::path path;

  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "efs-config-XXXXXX").string();
    path = mkdtemp(name.data());
  }

  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("the ancestor's grammar and the block form mean the same") {
  check_is_example(parsed(ancestor, {}, "dir/my job.yaml"));
  check_is_example(parsed(block, {}, "dir/my job.yaml"));
}

TEST_CASE("the line of a resource is kept for messages") {
  CHECK(parsed(ancestor).resources[1].line == 19);
  CHECK(parsed(block).resources[1].line == 17);
}

TEST_CASE("flow maps, and a list of pairs in block form") {
  const auto config = parsed(
      "global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}\n"
      "resources:\n  -\n    - path: a\n    - flags: persistent\n  - {path: b}\n");
  REQUIRE(config.resources.size() == 2);
  CHECK(config.resources[0].path == "/r/a");
  CHECK(config.resources[0].file_class == FileClass::persistent);
  CHECK(config.resources[1].path == "/r/b");
}

TEST_CASE("without backends there is one in memory") {
  for (const std::string rest : {"", "backends: []\n", "backends:\n"}) {
    const auto config =
        parsed("global-settings: [ root-dir: /r, mount-dir: /m, results-dir: /o ]\n" + rest);
    REQUIRE(config.backends.size() == 1);
    CHECK(config.backends[0].id == "dram");
    CHECK(config.backends[0].type == BackendType::dram);
    CHECK_FALSE(config.backends[0].capacity);
    CHECK(config.workers == 0);
    CHECK(config.transfer_size == 2u << 20);
  }
}

TEST_CASE("how a job treats the PFS") {
  const auto config = parsed(pfs_rules);
  CHECK(config.existing == Existing::fail);
  CHECK(config.results_group == "project");
  CHECK(config.results_mode == 0660U);
  CHECK(config.on_conflict == OnConflict::keep_both);
  CHECK(config.verify == Verify::read_back);
  CHECK(config.max_rate == 1'500'000'000);
  CHECK(config.max_ops == 2000);
  CHECK(config.retries == 0);
  REQUIRE(config.resources.size() == 2);
  CHECK(config.resources[0].priority == 0);
  CHECK(config.resources[1].priority == 10);
  const auto plain = parsed("global-settings: [ root-dir: /r, mount-dir: /m, results-dir: /o ]\n");
  CHECK(plain.on_conflict == OnConflict::fail);
  CHECK(plain.verify == Verify::stream);
  CHECK(plain.max_rate == 0);
  CHECK(plain.max_ops == 0);
  CHECK(plain.retries == 6);
}

TEST_CASE("capacity all is no capacity") {
  const auto config = parsed(
      "global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}\nbackends: [[id: d, type: "
      "dram, capacity: all, enforce: strict, huge: never]]\n");
  CHECK_FALSE(config.backends[0].capacity);
  CHECK_FALSE(config.backends[0].huge_pages);
  CHECK(config.backends[0].enforce == Enforce::strict);
}

TEST_CASE("output rules") {
  const auto config = parsed(R"(global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}
outputs:
  - {path: "out//x/../", flags: persistent}
  - {path: /m/a/*.log, flags: temporary}
  - path: /r/b
  - path: /m/
  - path: ./c
)");
  REQUIRE(config.outputs.size() == 5);
  CHECK(config.outputs[0].pattern == "out");
  CHECK(config.outputs[1].pattern == "a/*.log");
  CHECK(config.outputs[1].file_class == FileClass::temporary);
  CHECK(config.outputs[2].pattern == "b");
  CHECK(config.outputs[2].file_class == FileClass::persistent);
  CHECK(config.outputs[3].pattern == "**");
  CHECK(config.outputs[4].pattern == "c");
}

TEST_CASE("output rules say when results go home") {
  const auto config = parsed(R"(global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}
outputs:
  - {path: a, drain: On-Close}
  - {path: b, drain: 10 min}
  - {path: c}
)");
  CHECK(config.outputs[0].drain == std::chrono::seconds(0));
  CHECK(config.outputs[1].drain == std::chrono::seconds(600));
  CHECK_FALSE(config.outputs[2].drain);
  CHECK(drains_results(config));
  CHECK(drain_of(config, "a/f", false) == std::chrono::seconds(0));
  CHECK_FALSE(drain_of(config, "a/f", true));
  CHECK_FALSE(drain_of(config, "c", false));
  CHECK_FALSE(drain_of(config, "d", false));
}

TEST_CASE("output rules say how many versions stay") {
  const auto config = parsed(R"(global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}
outputs:
  - {path: "tmp*", flags: temporary}
  - {path: "ckpt/step*", drain: on-close, keep: 2}
  - {path: "run/*/state.h5", drain: on-close, keep: 1}
  - {path: "**/chk.*", drain: 1 h, keep: 3, to-pfs: 1 in 10}
  - {path: "log*", drain: on-close}
)");
  CHECK(config.outputs[0].keep == 0);
  CHECK(config.outputs[1].keep == 2);
  CHECK(keeps_versions(config));
  CHECK(config.outputs[2].send_one_in == 1);
  CHECK(config.outputs[3].send_one_in == 10);
  CHECK(sends_some_versions(config));
  const auto name = [&](std::string_view path) {
    const auto version = version_name(config, path);
    return !version
               ? "none"
               : std::to_string(version->rule) + " " + version->directory + "|" + version->name;
  };
  CHECK(name("ckpt/step1") == "1 ckpt|step1");
  CHECK(name("/ckpt/step1/deep/rank0") == "1 ckpt|step1");
  CHECK(name("run/7/state.h5") == "2 run|7");
  CHECK(name("run/7/other") == "none");
  CHECK(name("chk.1") == "3 |chk.1");
  CHECK(name("a/b/chk.1/chk.2") == "3 a/b|chk.1");
  CHECK(name("log1") == "none");
  CHECK(name("tmp1") == "none");
  CHECK(name("else") == "none");
}

TEST_CASE("the versions of a pattern are up to its last wildcard") {
  CHECK(version_pattern("ckpt/step*") == "ckpt/step*");
  CHECK(version_pattern("run/*/state.h5") == "run/*");
  CHECK(version_pattern("a?/b[0-9]/c/d") == "a?/b[0-9]");
  CHECK(version_pattern("*") == "*");
  CHECK(version_pattern("a/b") == "");
  CHECK(version_pattern("") == "");
}

TEST_CASE("resource paths are normalised below root-dir") {
  const auto config = parsed(R"(global-settings: {root-dir: /r/x/.., mount-dir: /m, results-dir: /o}
resources: [ [ path: "a/../b//c/" ], [ path: "/r/./d" ], [ path: "." ], [ path: "e\\*" ] ]
)");
  REQUIRE(config.resources.size() == 4);
  CHECK(config.resources[0].path == "/r/b/c");
  CHECK(config.resources[1].path == "/r/d");
  CHECK(config.resources[2].path == "/r");
  CHECK(config.resources[3].path == "/r/e\\*");
  CHECK(config.resources[3].is_glob);
}

TEST_CASE("a path may hold any character, as names of files do") {
  const auto config =
      parsed(R"(global-settings: {root-dir: "/r\nr", mount-dir: "/m\tm", results-dir: "/o\e"}
resources: [ [ path: "two\nlines" ] ]
outputs: [ [ path: "out\n/*" ] ]
)");
  CHECK(config.root_dir == "/r\nr");
  CHECK(config.mount_dir == "/m\tm");
  CHECK(config.results_dir == "/o\033");
  CHECK(config.resources.at(0).path == "/r\nr/two\nlines");
  CHECK(config.outputs.at(0).pattern == "out\n/*");
}

TEST_CASE("a byte order mark, the line ends of Windows and spaces of documents change nothing") {
  std::string text =
      "global-settings:\n  root-dir: /r\n  mount-dir: /m\n  results-dir: /o\n  transfer-size: "
      "1\xc2\xa0MiB\nresources:\n  - path: \"a\xc2\xa0\"\n  - path: b\xc2\xa0"
      "c\n";
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2) {
    text.insert(at, 1, '\r');
  }
  const auto config = parse("\xef\xbb\xbf" + text, "job.yaml");
  REQUIRE(config);
  CHECK(config->root_dir == "/r");
  CHECK(config->transfer_size == 1U << 20U);
  REQUIRE(config->resources.size() == 2);
  CHECK(config->resources[0].path == "/r/a\xc2\xa0");  // names of files may contain this
  CHECK(config->resources[1].path ==
        "/r/b\xc2\xa0"
        "c");
}

TEST_CASE("relative directories are relative to the working directory") {
  const auto config =
      parsed("global-settings: {root-dir: in, mount-dir: ./m, results-dir: out/}\n");
  const auto here = std::filesystem::current_path().string();
  CHECK(config.root_dir == here + "/in");
  CHECK(config.mount_dir == here + "/m");
  CHECK(config.results_dir == here + "/out");
}

TEST_CASE("in-place says that results-dir is root-dir") {
  for (const std::string how :
       {"in-place: true", "in-place: yes, results-dir: /r/", "in-place: 'True', results-dir: /r"}) {
    const auto config = parsed("global-settings: {root-dir: /r, mount-dir: /m, " + how + "}\n");
    CHECK(config.in_place);
    CHECK(config.results_dir == "/r");
  }
}

TEST_CASE("results-dir may be absent where nothing can be persistent") {
  const auto config = parsed(
      "global-settings: {root-dir: /r, mount-dir: /m}\nresources: [[path: a]]\noutputs: [[path: "
      "'**', flags: temporary]]\n");
  CHECK(config.results_dir.empty());
}

TEST_CASE("the command line wins over the file") {
  const Overrides overrides{
      .name = "n", .root_dir = "/r2", .mount_dir = "/m2/", .results_dir = "/o2", .log_file = "/l"};
  const std::string text =
      "global-settings: {name: a/b, root-dir: /, mount-dir: /, results-dir: /, log-file: "
      "/m2/x}\nresources: [[path: /r2/a]]\n";
  for (const auto& file_text : {text, std::string("resources: [[path: a]]\n")}) {
    const auto config = parsed(file_text, overrides);
    CHECK(config.name == "n");
    CHECK(config.root_dir == "/r2");
    CHECK(config.mount_dir == "/m2");
    CHECK(config.results_dir == "/o2");
    CHECK(config.log_file == "/l");
    CHECK(config.resources[0].path == "/r2/a");
  }
}

TEST_CASE("the default name comes from the file's stem") {
  const std::string text = "global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}\n";
  CHECK(parsed(text, {}, "/a/b/run.1.yaml").name == "run.1");
  CHECK(parsed(text, {}, "a b\xC3\xA9.yaml").name == "a-b--");
  CHECK(parsed(text, {}, ".hidden").name == "hidden");
  CHECK(parsed(text, {}, "-.yaml").name == "job");
  CHECK(parsed(text, {}, std::string(200, 'x') + ".yaml").name == std::string(64, 'x'));
  CHECK(parsed("global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o, name: A.b_c-9}\n")
            .name == "A.b_c-9");
}

TEST_CASE("load reads a file") {
  const TemporaryDirectory directory;
  const auto file = (directory.path / "run.yaml").string();
  std::ofstream(file) << ancestor;
  const auto config = load(file);
  REQUIRE(config);
  CHECK(config->name == "run");
  CHECK(config->source == file);
}

TEST_CASE("what cannot be read is one problem") {
  const TemporaryDirectory directory;
  const auto fifo = (directory.path / "fifo").string();
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  for (const auto& file : {(directory.path / "absent").string(), directory.path.string(), fifo}) {
    const auto config = load(file);
    REQUIRE_FALSE(config);
    REQUIRE(config.error().size() == 1);
    CHECK(config.error()[0].line == 0);
    CHECK_FALSE(config.error()[0].text.empty());
    CHECK(to_string(config.error()[0], file).starts_with(file + ": "));
  }
}

TEST_CASE("every example in conf is a good job file") {
  Surroundings in_batch_job;
  in_batch_job.variable = [](const std::string& name) {
    return name == "SLURM_JOB_ID" ? std::optional<std::string>("7") : std::nullopt;
  };
  std::set<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(EFS_SOURCE_DIR) + "/conf")) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    names.insert(entry.path().stem().string());
    const auto config = load(entry.path().string(), {}, in_batch_job);
    if (!config) {
      for (const auto& problem : config.error()) {
        UNSCOPED_INFO(to_string(problem, entry.path().string()));
      }
    }
    CHECK(config.has_value());
  }
  for (const auto* name : {"minimal", "pmem", "echofs", "outputs"}) {
    CHECK(names.contains(name));
  }
}

TEST_CASE("the capacity of a backend that declares none") {
  constexpr std::uint64_t gib = 1u << 30;
  JobConfig config;
  efs::config::Backend backend;
  CHECK(capacity_of(config, backend, 8 * gib) == 4 * gib);
  config.job_memory = 9 * gib;
  CHECK(capacity_of(config, backend, 8 * gib) == 4 * gib);
  config.job_memory = 2 * gib;
  CHECK(capacity_of(config, backend, 8 * gib) == 1 * gib);
  config.memory_share = 25;
  CHECK(capacity_of(config, backend, 8 * gib) == gib / 2);
  CHECK(capacity_of(config, backend, 1 * gib) == gib / 4);
  backend.most_capacity = gib / 8;
  CHECK(capacity_of(config, backend, 8 * gib) == gib / 8);
  backend.capacity = 3 * gib;
  CHECK(capacity_of(config, backend, 8 * gib) == 3 * gib);
  backend.type = BackendType::fsdax;
  CHECK(capacity_of(config, backend, 8 * gib) == 3 * gib);
  backend.capacity.reset();
  CHECK(capacity_of(config, backend, 8 * gib) == std::nullopt);
}

TEST_CASE("the default capacity is never more than the memory that there is") {
  CHECK(default_capacity(1000, 50) == 1000);
  CHECK(default_capacity(smallest_capacity - 1, 100) == smallest_capacity - 1);
  CHECK(default_capacity(smallest_capacity + 1, 50) == smallest_capacity);
  CHECK(default_capacity(500ULL << 20, 50) == 250ULL << 20);
  CHECK(default_capacity(500ULL << 20, 100) == 500ULL << 20);
  CHECK(default_capacity(~0ULL, 100) == ~0ULL);
}
