// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <sys/stat.h>

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "config/precedence.hpp"

using namespace efs::config;

namespace {

using Variables = std::map<std::string, std::string>;

Site site(const std::string& text) {
  auto parsed = parse_site(text, "site.yaml");
  if (!parsed) {
    FAIL(to_string(parsed.error().front(), "?"));
  }
  return *parsed;
}

Surroundings world(const Variables& variables, const std::string& site_text = "") {
  Surroundings surroundings{.user = "ann", .home = "/home/ann", .node = "n7"};
  surroundings.variable = [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  if (!site_text.empty()) {
    surroundings.site = std::make_shared<const Site>(site(site_text));
  }
  return surroundings;
}

const std::string directories = "global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o";

std::expected<JobConfig, std::vector<Problem>> job(const std::string& more,
                                                   const Overrides& overrides,
                                                   const Surroundings& surroundings,
                                                   const std::string& rest = "") {
  return parse(directories + more + "}\n" + rest, "job.yaml", overrides, surroundings);
}

EffectiveValue value_of(const JobConfig& config, const std::string& key,
                        const std::string& section = "global-settings") {
  for (const auto& value : config.effective) {
    if (value.section == section && value.key == key) {
      return value;
    }
  }
  FAIL("no value " << key);
  return {};
}

// The first problem as users see it.
std::string problem(const std::expected<JobConfig, std::vector<Problem>>& config) {
  REQUIRE_FALSE(config);
  return to_string(config.error().front(), "job.yaml");
}

}  // namespace

// For every set of sources with a value, checks the source that wins.
TEST_CASE("command line over environment over job file over site file over built-in") {
  for (unsigned places = 0; places < 16; ++places) {
    const bool in_site = (places & 1) != 0, in_job = (places & 2) != 0,
               in_environment = (places & 4) != 0, in_command = (places & 8) != 0;
    Overrides overrides;
    if (in_command) {
      overrides.settings.emplace_back("workers", "5");
    }
    const auto config = job(in_job ? ", workers: 3" : "", overrides,
                            world(in_environment ? Variables{{"EFS_WORKERS", "4"}} : Variables{},
                                  in_site ? "global-settings: {workers: 2}\n" : ""));
    INFO("places " << places);
    REQUIRE(config);
    const auto shown = value_of(*config, "workers");
    CHECK(config->workers == (in_command       ? 5
                              : in_environment ? 4
                              : in_job         ? 3
                              : in_site        ? 2
                                               : JobConfig{}.workers));
    CHECK(shown.value == (config->workers == 0 ? "automatic" : std::to_string(config->workers)));
    CHECK(shown.source == (in_command       ? Source::command_line
                           : in_environment ? Source::environment
                           : in_job         ? Source::job_file
                           : in_site        ? Source::site
                                            : Source::built_in));
    CHECK(shown.where == (in_command       ? "--set workers"
                          : in_environment ? "EFS_WORKERS"
                          : in_job         ? "job.yaml:1"
                          : in_site        ? "site.yaml:1"
                                           : ""));
  }
}

TEST_CASE("every key of global-settings can come from every place") {
  const std::map<std::string, std::pair<std::string, std::string>> values{
      {"name", {"a", "a"}},
      {"root-dir", {"/a", "/a"}},
      {"mount-dir", {"/a", "/a"}},
      {"results-dir", {"/a", "/a"}},
      {"in-place", {"no", "false"}},
      {"log-file", {"/a", "/a"}},
      {"log-level", {"warn", "warn"}},
      {"status-file", {"/a", "/a"}},
      {"trace", {"/a", "/a"}},
      {"access-log", {"/a", "/a"}},
      {"access-log-size", {"1 MiB", "1 MiB"}},
      {"workers", {"3", "3"}},
      {"transfer-size", {"2 MiB", "2 MiB"}}};
  for (const auto key : settings_schema()) {
    const std::string name(key);
    INFO(name);
    const auto known = values.find(name);
    if (known == values.end()) {
      continue;  // this key has its own tests
    }
    const auto& [given, shown] = known->second;
    const auto environment = job("", {}, world({{variable_of(key), given}}));
    REQUIRE(environment);
    CHECK(value_of(*environment, name).value == shown);
    CHECK(value_of(*environment, name).where == variable_of(key));
    const auto command = job("", {.settings = {{name, given}}}, world({}));
    REQUIRE(command);
    CHECK(value_of(*command, name).value == shown);
    if (name == "name" || name == "in-place") {
      continue;  // this key applies to a single job only
    }
    const auto from_site =
        parse("global-settings: {" + std::string(name == "root-dir" ? "" : "root-dir: /r, ") +
                  (name == "mount-dir" ? "" : "mount-dir: /m, ") +
                  (name == "results-dir" ? "" : "results-dir: /o") + "}\n",
              "job.yaml", {}, world({}, "global-settings: {" + name + ": " + given + "}\n"));
    if (!from_site) {
      FAIL(to_string(from_site.error().front(), "job.yaml"));
    }
    CHECK(value_of(*from_site, name).value == shown);
    CHECK(value_of(*from_site, name).source == Source::site);
  }
  CHECK(variable_of("access-log-size") == "EFS_ACCESS_LOG_SIZE");
}

TEST_CASE("the environment and the site file are expanded, the command line is not") {
  const auto config = job("", {.settings = {{"status-file", "/s/%j/$X"}}},
                          world({{"SLURM_JOB_ID", "7"}, {"EFS_TRACE", "/t/%j"}},
                                "global-settings: {access-log: \"~/%j.log\"}\n"));
  REQUIRE(config);
  CHECK(config->status_file == "/s/%j/$X");
  CHECK(config->trace == "/t/7");
  CHECK(config->access_log == "/home/ann/7.log");
}

TEST_CASE("named options win over --set") {
  const auto config =
      job("", {.name = "one", .settings = {{"name", "two"}}}, world({{"EFS_NAME", "three"}}));
  REQUIRE(config);
  CHECK(config->name == "one");
  CHECK(value_of(*config, "name").where == "--name");
}

TEST_CASE(
    "~ on the command line is the shell's: where that left it alone no directory is called so") {
  const std::string reason =
      "'~' is not replaced on the command line (write $HOME, or ./~ for a directory of that name)";
  CHECK(problem(job("", {.results_dir = "~/out"}, world({})))
            .starts_with("--results-dir: " + reason));
  CHECK(problem(job("", {.settings = {{"log-file", "~"}}}, world({})))
            .starts_with("--set log-file: " + reason));
  CHECK(job("", {.results_dir = "./~/out"}, world({})));
  CHECK(job("", {.results_dir = "/r/~"}, world({})));
}

TEST_CASE("problems name the place that gave the value") {
  CHECK(problem(job("", {}, world({{"EFS_WORKERS", "many"}})))
            .starts_with("EFS_WORKERS: 'workers' is 'many'"));
  CHECK(problem(job("", {.settings = {{"workers", "0"}}}, world({})))
            .starts_with("--set workers: 'workers' is '0'"));
  CHECK(problem(job("", {.settings = {{"wokers", "1"}}}, world({})))
            .starts_with("--set wokers: unknown key 'wokers' (did you mean 'workers'?)"));
  CHECK(problem(job("", {.settings = {{"workers", ""}}}, world({})))
            .starts_with("--set workers: 'workers' has no value"));
  CHECK(problem(job("", {}, world({}, "global-settings:\n  workers: 999\n")))
            .starts_with("site.yaml:2:12: 'workers' is '999'"));
  CHECK(problem(job("", {.log_file = "/m/x"}, world({})))
            .starts_with("--log-file: 'log-file' is inside 'mount-dir'"));
}

TEST_CASE("a bad value stays a problem where another one wins") {
  CHECK(job(", workers: []", {.settings = {{"workers", "2"}}}, world({})).error().size() == 1);
}

TEST_CASE("the site's backends are those of jobs that name none") {
  const std::string text =
      "backends: [[id: pmem, type: NVRAM-NVML, daxfs: \"/pmem/%u\", capacity: 3.5 GB]]\n";
  const auto without = job("", {}, world({}, text));
  REQUIRE(without);
  CHECK(without->backends[0].id == "pmem");
  CHECK(without->backends[0].daxfs == "/pmem/ann");
  CHECK(without->backends[0].capacity == 3'500'000'000u);
  CHECK(value_of(*without, "capacity", "backends[1]").source == Source::site);
  const auto with = job("", {}, world({}, text), "backends: [[id: ram, capacity: 64 MiB]]\n");
  REQUIRE(with);
  CHECK(with->backends.size() == 1);
  CHECK(with->backends[0].id == "ram");
}

TEST_CASE("what the site has fixed nobody changes") {
  const std::string text =
      "global-settings: {workers: 2}\nbackends: [[id: p, type: NVRAM-NVML, daxfs: /pmem, capacity: "
      "1 GiB]]\nfixed: [workers, daxfs, type]\n";
  CHECK(job("", {}, world({}, text))->workers == 2);
  CHECK(job(", workers: 2", {}, world({}, text))->workers == 2);
  CHECK(problem(job(", workers: 4", {}, world({}, text)))
            .starts_with("job.yaml:1:74: 'workers' is '4', but the site has fixed it to '2' "
                         "(remove it; see site.yaml:1)"));
  CHECK(problem(job("", {}, world({{"EFS_WORKERS", "4"}}, text)))
            .starts_with("EFS_WORKERS: 'workers' is '4', but the site has fixed it"));
  CHECK(problem(job("", {.settings = {{"workers", "4"}}}, world({}, text)))
            .starts_with("--set workers: 'workers' is '4', but the site has fixed it"));
  CHECK(
      problem(job("", {}, world({}, text), "backends: [[id: x, type: NVRAM-NVML, daxfs: /mine]]\n"))
          .starts_with("job.yaml:2:45: 'daxfs' is '/mine', but the site has fixed it to '/pmem'"));
  const auto more = job("", {}, world({}, text), "backends: [[id: x, capacity: 32 MiB]]\n");
  REQUIRE(more);
  CHECK(more->backends[0].daxfs == "/pmem");
  CHECK(more->backends[0].capacity == 32u << 20);
  CHECK(problem(job("", {}, world({}, "backends: [[id: p]]\nfixed: backends\n"),
                    "backends: [[id: x]]\n"))
            .contains("the site has fixed the backends"));
}

TEST_CASE("what is fixed is compared by its meaning") {
  const std::string text =
      "global-settings: {transfer-size: 2 MiB, status-file: \"/s/%u//%j/\"}\nfixed: "
      "[transfer-size, status-file]\n";
  const auto surroundings = world({{"SLURM_JOB_ID", "7"}, {"EFS_TRANSFER_SIZE", "2048KiB"}}, text);
  const auto config =
      job(", status-file: /s/$WHO/7", {.settings = {{"status-file", "/s/ann/7"}}},
          world({{"SLURM_JOB_ID", "7"}, {"WHO", "ann"}, {"EFS_TRANSFER_SIZE", "2048KiB"}}, text));
  if (!config) {
    FAIL(to_string(config.error().front(), "job.yaml"));
  }
  CHECK(config->status_file == "/s/ann/7");
  // variables are not expanded in a value of the command line
  CHECK(problem(job("", {.settings = {{"status-file", "/s/%u/%j"}}}, surroundings))
            .contains("the site has fixed it"));
  CHECK(
      problem(job(", status-file: /s/ann/8", {}, surroundings)).contains("the site has fixed it"));
}

TEST_CASE("limits: what asks for more is refused, what asks for nothing is lowered") {
  const std::string text = "limits:\n  workers: 4\n  capacity: 1 GiB\n  transfer-size: 512 KiB\n";
  const auto low = job("", {}, world({}, text));
  REQUIRE(low);
  CHECK(low->workers == 4);
  CHECK(low->transfer_size == 512u << 10);
  CHECK_FALSE(low->backends[0].capacity);  // a job may have less memory than the machine
  CHECK(low->backends[0].most_capacity == 1u << 30);
  CHECK(value_of(*low, "capacity", "backends[1]").value ==
        "50% of the job's memory, at most 1 GiB");
  CHECK(value_of(*low, "workers").where == "site.yaml:2");
  CHECK(value_of(*low, "capacity", "backends[1]").where == "site.yaml:3");
  CHECK(job(", workers: 3", {}, world({}, text), "backends: [[id: d, capacity: 0.5 GiB]]\n")
            ->backends[0]
            .capacity == 1u << 29);
  CHECK(job("", {}, world({}, text), "backends: [[id: d, capacity: all]]\n")
            ->backends[0]
            .most_capacity == 1u << 30);
  CHECK(job("", {}, world({}, text), "backends: [[id: d, type: NVRAM-NVML, daxfs: /d]]\n")
            ->backends[0]
            .capacity == 1u << 30);
  CHECK(problem(job(", workers: 5", {}, world({}, text)))
            .starts_with("job.yaml:1:74: 'workers' is '5', above the site's limit of 4 (ask for "
                         "less; the limit is set in site.yaml:2)"));
  CHECK(problem(job("", {.settings = {{"workers", "5"}}}, world({}, text)))
            .starts_with("--set workers: 'workers' is '5', above"));
  CHECK(problem(job("", {}, world({}, text), "backends: [[id: d, capacity: 1.1 GiB]]\n"))
            .starts_with("job.yaml:2:30: 'capacity' is above the site's limit of 1 GiB"));
}

TEST_CASE("the site's share of a job's memory") {
  CHECK(job("", {}, world({}, ""))->memory_share == 50);
  CHECK(job("", {}, world({}, "memory-share: 30%\n"))->memory_share == 30);
  CHECK(job("", {}, world({}, "memory-share: 100\n"))->memory_share == 100);
  CHECK(value_of(*job("", {}, world({}, "memory-share: 30%\n"), "backends: [[id: d]]\n"),
                 "capacity", "backends[1]")
            .value == "30% of the job's memory");
}

TEST_CASE("the site's default for huge pages") {
  const auto huge = [](const std::string& site, const std::string& backends) {
    return job("", {}, world({}, site), backends);
  };
  CHECK(huge("", "")->backends[0].huge_pages);
  CHECK_FALSE(huge("huge: never\n", "")->backends[0].huge_pages);
  CHECK_FALSE(huge("huge: never\n", "backends: [[id: d]]\n")->backends[0].huge_pages);
  CHECK(huge("huge: never\n", "backends: [[id: d, huge: within_size]]\n")->backends[0].huge_pages);
  CHECK_FALSE(
      huge("huge: within_size\n", "backends: [[id: d, huge: never]]\n")->backends[0].huge_pages);
  CHECK_FALSE(huge("huge: never\nbackends: [{id: s}]\n", "")->backends[0].huge_pages);
  for (const char* backends : {"", "backends: [[id: d]]\n"}) {
    const auto shown = value_of(*huge("huge: never\n", backends), "huge", "backends[1]");
    CHECK(shown.value == "never");
    CHECK(shown.source == Source::site);
    CHECK(shown.where == "site.yaml:1");
  }
}

TEST_CASE("the memory that Slurm has given the job of this environment") {
  const auto memory = [](const Variables& variables) {
    return memory_of_batch_job(world(variables));
  };
  CHECK_FALSE(memory({}));
  CHECK(memory({{"SLURM_MEM_PER_NODE", "500"}}) == 500u << 20);
  CHECK(memory({{"SLURM_MEM_PER_CPU", "100"}, {"SLURM_CPUS_ON_NODE", "3"}}) == 300u << 20);
  CHECK_FALSE(memory({{"SLURM_MEM_PER_CPU", "100"}}));
  CHECK_FALSE(memory({{"SLURM_MEM_PER_CPU", "4000000000"}, {"SLURM_CPUS_ON_NODE", "4000000000"}}));
  for (const char* bad : {"0", "", "-1", "5G", "999999999999999999999999"}) {
    CHECK_FALSE(memory({{"SLURM_MEM_PER_NODE", bad}}));
  }
}

TEST_CASE("site files that cannot be") {
  const auto check = [](const std::string& text, const std::string& words) {
    const auto parsed = parse_site(text, "site.yaml");
    INFO(text);
    REQUIRE_FALSE(parsed);
    CHECK(to_string(parsed.error().front(), "?").starts_with("site.yaml:"));
    CHECK(to_string(parsed.error().front(), "?").contains(words));
  };
  check("limit: {workers: 3}\n",
        "1:1: unknown key 'limit' in the site file (did you mean 'limits'?)");
  check("limits: {wokers: 3}\n", "unknown key 'wokers'");
  check("limits: {workers: 3000}\n", "out of range");
  check("fixed: [wokers]\n", "'wokers' cannot be fixed (did you mean 'workers'?)");
  check("fixed: [workers]\n", "'workers' is fixed, but has no value here");
  check("fixed: backends\n", "has no value here");
  check("global-settings: {name: x}\n", "'name' is of one job");
  check("runtime-dir: run\n", "absolute");
  check("runtime-dir: [a]\n", "one value");
  check("memory-share: 0%\n", "1:15: 'memory-share' is '0'");
  check("memory-share: 101%\n", "1 to 100");
  check("memory-share: half\n", "a whole number");
  check("huge: nevr\n", "1:7: 'nevr' is not a value of 'huge'");
  check("a: [\n", "not valid YAML");
  CHECK(site("runtime-dir: /var/run/efs\n").runtime_dir == "/var/run/efs");
  CHECK(site("").file == "site.yaml");
}

TEST_CASE("a site file is trusted only where nobody else can change it") {
  std::string name = (std::filesystem::temp_directory_path() / "efs-site-XXXXXX").string();
  const std::filesystem::path directory = mkdtemp(name.data());
  const auto file = (directory / "site.yaml").string();
  std::ofstream(file) << "limits: {workers: 3}\n";
  const auto load = [&](const std::string& named) {
    return load_site(world({{"EFS_SITE_FILE", named}}));
  };
  chmod(file.c_str(), 0644);
  REQUIRE(load(file));
  CHECK((*load(file))->most_workers == 3u);
  for (const mode_t mode : {0664, 0646}) {
    chmod(file.c_str(), mode);
    REQUIRE_FALSE(load(file));
    CHECK(load(file).error().front().text.contains("can be changed by others"));
  }
  if (::geteuid() == 0) {
    chmod(file.c_str(), 0644);
    REQUIRE(chown(file.c_str(), 65534, 65534) == 0);
    CHECK_FALSE(load(file));
  }
  CHECK_FALSE(load((directory / "absent").string()));
  std::filesystem::remove_all(directory);
}

TEST_CASE(
    "what was read of job file and site file gives the same job when the files have changed") {
  std::string name = (std::filesystem::temp_directory_path() / "efs-read-XXXXXX").string();
  const std::filesystem::path directory = mkdtemp(name.data());
  const auto job_file = (directory / "job.yaml").string(),
             site_file = (directory / "site.yaml").string();
  std::ofstream(job_file)
      << "global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o, workers: 4}\n";
  std::ofstream(site_file) << "global-settings: {access-log: /var/log/a}\nlimits: {workers: 8}\n";
  chmod(site_file.c_str(), 0644);
  ::setenv("EFS_SITE_FILE", site_file.c_str(), 1);
  const auto read = read_files(job_file);
  std::ofstream(site_file) << "limits: {workers: 2}\n";
  const bool is_refused_now = !load_for_user(job_file, {}, {});
  std::filesystem::remove_all(directory);
  const bool cannot_be_read = !read_files(job_file);
  ::unsetenv("EFS_SITE_FILE");
  CHECK(is_refused_now);
  CHECK(cannot_be_read);
  REQUIRE(read);
  const auto config = parse_for_user(*read, job_file, {}, {});
  REQUIRE(config);
  CHECK(config->workers == 4);
  CHECK(config->access_log == "/var/log/a");
  CHECK(config->source == job_file);
  CHECK(config->text == read->job);
}

TEST_CASE("the example of a site file is good") {
  std::ifstream stream(std::string(EFS_SOURCE_DIR) + "/conf/site/site.yaml");
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  REQUIRE_FALSE(text.empty());
  const auto parsed = parse_site(text, "site.yaml");
  if (!parsed) {
    FAIL(to_string(parsed.error().front(), "?"));
  }
  CHECK(job("", {}, world({{"SLURM_JOB_ID", "1"}}, text)));
}
