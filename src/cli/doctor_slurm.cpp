// SPDX-License-Identifier: BSD-3-Clause
// Checks slurmctld's configuration and the plugin's line in plugstack.conf.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "base/mounts.hpp"
#include "base/text.hpp"
#include "cli/doctor.hpp"
#include "queue/settings.hpp"

namespace efs::cli {
namespace {

using Config = SlurmConfig;

constexpr double usual_staging = 600;  // seconds that an import commonly takes
constexpr double not_set = 65534;      // scontrol shows this value for "no limit"

// Parses "10 sec". Returns nullopt if the key is not set or means no limit.
std::optional<double> seconds_of(const Config& config, const std::string& key) {
  const std::string text = value_of(config, key);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || value >= not_set) {
    return std::nullopt;
  }
  return value;
}

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").contains("," + word + ",");
}

std::string whole(double seconds) {
  return std::to_string(static_cast<long>(seconds));
}

Finding judge_prolog_flags(const Config& config) {
  const std::string flags = value_of(config, "PrologFlags"),
                    text = flags.empty() ? "(none)" : flags;
  if (has_word(flags, "RunInJob")) {
    return {
        Level::problem, "PrologFlags",
        text +
            ": with RunInJob the end of a job kills its file system before the results are "
            "exported",
        "slurm.conf: PrologFlags=Alloc,DeferBatch, without RunInJob; then restart slurmctld and "
        "the slurmds"};
  }
  if (has_word(flags, "Alloc") && has_word(flags, "DeferBatch")) {
    return {Level::ok, "PrologFlags", text, ""};
  }
  return {Level::problem, "PrologFlags",
          text +
              ": scripts begin before all nodes have their inputs, and jobs fail with a message "
              "that says so",
          "slurm.conf: PrologFlags=Alloc,DeferBatch; then restart slurmctld and the slurmds"};
}

Finding judge_batch_start(const Config& config, double staging) {
  const auto limit = seconds_of(config, "BatchStartTimeout");
  if (!limit) {
    return {Level::warning, "BatchStartTimeout", "scontrol does not show it", ""};
  }
  const std::string text = whole(*limit) + " s";
  if (*limit >= staging) {
    return {Level::ok, "BatchStartTimeout", text, ""};
  }
  return {*limit < 120 ? Level::problem : Level::warning, "BatchStartTimeout",
          text + ": a job that is still staging in some 10 s later is requeued",
          "slurm.conf: BatchStartTimeout=" + whole(2 * staging) +
              " or more: above the longest wait for a turn and the longest stage-in together (" +
              whole(staging) + " s here)"};
}

Finding judge_epilog(const Config& config, double staging) {
  const auto limit = seconds_of(config, "PrologEpilogTimeout");
  if (!limit) {
    return {Level::ok, "PrologEpilogTimeout", "is not set", ""};
  }
  if (*limit >= 2 * staging) {
    return {Level::ok, "PrologEpilogTimeout", whole(*limit) + " s", ""};
  }
  return {Level::problem, "PrologEpilogTimeout",
          whole(*limit) +
              " s: a stage-in that takes longer fails its job, and of a stage-out that takes "
              "longer the rest stays on the node",
          "slurm.conf: leave it out, or set it above " + whole(2 * staging)};
}

Finding judge_unkillable(const Config& config) {
  const auto limit = seconds_of(config, "UnkillableStepTimeout"),
             wait = seconds_of(config, "KillWait");
  if (!limit) {
    return {Level::warning, "UnkillableStepTimeout", "scontrol does not show it", ""};
  }
  const double least = 60 + wait.value_or(30);
  const std::string text = whole(*limit) + " s, KillWait " + whole(wait.value_or(30)) + " s";
  if (*limit >= 60) {
    return {Level::ok, "UnkillableStepTimeout", text, ""};
  }
  return {Level::warning, "UnkillableStepTimeout",
          text +
              ": tasks that wait for a worker to be replaced, or for a full PFS, may take longer "
              "to end, and the node is drained",
          "slurm.conf: UnkillableStepTimeout=" + whole(least) + " or more"};
}

Findings judge_users(const Config& config) {
  Findings found;
  if (const std::string user = value_of(config, "SlurmdUser");
      !user.empty() && !user.starts_with("root")) {
    found.push_back({Level::problem, "SlurmdUser", user + ": the plugin's prolog needs root",
                     "slurm.conf: SlurmdUser=root"});
  }
  return found;
}

bool is_readable(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

// Formats a release with a two-digit number, as in 22.05.
std::string name_of_release(unsigned major, unsigned minor) {
  return std::to_string(major) + "." + (minor < 10 ? "0" : "") + std::to_string(minor);
}

// Compares the release that the plugin was built for with `version` of this Slurm.
Finding judge_release(const std::string& path, const std::string& version) {
  // The plugin contains the number of the Slurm release that it was built for
  // (slurm-plugin/spank_efs.c).
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {}), mark = "efs-built-for-slurm=";
  const auto at = text.find(mark);
  unsigned number = 0, major = 0, minor = 0;
  if (at == std::string::npos ||
      std::sscanf(text.c_str() + at + mark.size(), "0x%6x", &number) != 1) {
    return {Level::warning, "plugin",
            path + " is there; the release of Slurm that it was built for is not known", ""};
  }
  if (std::sscanf(version.c_str(), "%u.%u", &major, &minor) != 2) {
    return {Level::ok, "plugin", path, ""};
  }
  const unsigned built_major = number >> 16, built_minor = number >> 8 & 0xff;
  if (built_major != major || built_minor != minor) {
    return {Level::problem, "plugin",
            path + " was built for Slurm " + name_of_release(built_major, built_minor) +
                ", and this is " + name_of_release(major, minor),
            "build it again, and replace the file by a rename"};
  }
  return {Level::ok, "plugin", path + ", built for Slurm " + name_of_release(major, minor), ""};
}

Finding judge_plugin_file(const PluginLine& line, const Config& config) {
  const std::string path = line.plugin.starts_with('/')
                               ? line.plugin
                               : value_of(config, "PluginDir") + "/" + line.plugin;
  if (!answers(path, patience)) {
    return silent("plugin", path);
  }
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) {
    return {Level::problem, "plugin",
            path + " is not there" +
                (line.required ? ": every launch on this node fails"
                               : ": jobs run without their files"),
            "install spank_efs.so there, or correct the line in plugstack.conf"};
  }
  if (st.st_uid != 0 || (st.st_mode & 022) != 0) {
    return {Level::problem, "plugin", path + " can be changed by others than root, as whom it runs",
            "chown root " + path + "; chmod 755 " + path};
  }
  return judge_release(path, value_of(config, "SLURM_VERSION"));
}

// `path`: of the program efs; "": not set.
Findings judge_program(const std::string& path) {
  if (!path.empty() && !answers(path, patience)) {
    return {silent("plugin, efs=", path)};
  }
  if (path.starts_with('/') && ::access(path.c_str(), X_OK) != 0) {
    return {{Level::problem, "plugin, efs=", path + " cannot be run",
             "install efs there, or correct plugstack.conf"}};
  }
  return {};
}

// `path`: the directory of the job's view; "": not set.
Findings judge_view(const std::string& path) {
  if (path.empty()) {
    return {};
  }
  if (!answers(path, patience)) {
    return {silent("plugin, view=", path)};
  }
  if (::access(path.c_str(), F_OK) != 0) {
    return {{Level::problem, "plugin, view=", path + " is not there",
             "mkdir " + path + " on every node"}};
  }
  return {};
}

Findings judge_arguments(const PluginLine& line) {
  Findings found = judge_program(argument_of(line, "efs"));
  for (const char* key : {"state", "run", "mount"}) {
    const std::string path = argument_of(line, key);
    if (!path.empty() && (!answers(path, patience) || ::access(path.c_str(), F_OK) == 0)) {
      found.push_back(judge_directory(std::string("plugin, ") + key + "=", path, true));
    }
  }
  for (const char* key : {"shared", "queue"}) {
    if (const std::string path = argument_of(line, key); !path.empty()) {
      found.push_back(judge_directory(std::string("plugin, ") + key + "=", path, false));
    }
  }
  add_findings(found, judge_view(argument_of(line, "view")));
  if (argument_of(line, "shared").empty()) {
    found.push_back({Level::warning, "plugin, shared=",
                     "is not set: a stage-in that fails on one node fails the tasks on that node "
                     "only, and efs status --job knows nothing",
                     "name a directory on the PFS"});
  }
  return found;
}

// With job_container/tmpfs each job has its own /tmp and /dev/shm: a job would not see the mounts
// that slurmd's prolog makes there.
Findings judge_containers(const PluginLine& line, const Config& config) {
  if (!value_of(config, "JobContainerType").contains("tmpfs")) {
    return {};
  }
  for (const char* key : {"mount", "run", "view"}) {
    const auto at = line.arguments.find(key);
    if (at != line.arguments.end() &&
        (at->second.starts_with("/tmp") || at->second.starts_with("/dev/shm"))) {
      return {{Level::problem, "JobContainerType",
               "job_container/tmpfs gives each job its own /tmp and /dev/shm, and " +
                   std::string(key) + "= lies there",
               "put it elsewhere, such as below /run"}};
    }
  }
  return {};
}

double longest_wait_of(const PluginLine& line) {
  const auto at = line.arguments.find("queue");
  if (at == line.arguments.end()) {
    return 0;
  }
  if (!answers(at->second, patience)) {
    return queue::Settings{}.longest_wait;
  }
  std::ifstream file(at->second + "/settings");
  const auto settings =
      queue::parse_settings(std::string(std::istreambuf_iterator<char>(file), {}));
  return settings ? settings->longest_wait : queue::Settings{}.longest_wait;
}

Findings examine_plugin(const Config& config, const PluginLine& line,
                        const std::string& plugstack) {
  if (!line.plugin.empty()) {
    Findings found{judge_plugin_file(line, config)};
    add_findings(found, judge_words(line));
    add_findings(found, judge_arguments(line));
    add_findings(found, judge_containers(line, config));
    return found;
  }
  if (plugstack.empty() || !is_readable(plugstack)) {
    return {{Level::warning, "plugin",
             (plugstack.empty() ? "plugstack.conf" : plugstack) + " cannot be read here",
             "look on a node, or as root"}};
  }
  return {{Level::problem, "plugin",
           "no line of " + plugstack + " loads spank_efs.so: sbatch knows no --efs",
           "add the line of plugstack.conf, from conf/slurm of the sources or "
           "/usr/share/doc/efs/examples/slurm of a package, on all nodes and submit hosts"}};
}

}  // namespace

Findings judge_slurm_config(const Config& config, double staging) {
  Findings found{judge_prolog_flags(config), judge_batch_start(config, staging),
                 judge_epilog(config, staging), judge_unkillable(config)};
  add_findings(found, judge_users(config));
  return found;
}

// A process that a prolog has started runs in slurmd's own cgroup.
Findings judge_slurmd_unit(const SlurmConfig& unit) {
  const std::string mode = value_of(unit, "KillMode");
  if (mode.empty()) {
    return {};
  }
  if (mode == "process" || mode == "none") {
    return {{Level::ok, "slurmd.service", "KillMode=" + mode, ""}};
  }
  return {{Level::problem, "slurmd.service",
           "KillMode=" + mode +
               ": when slurmd is restarted systemd kills the file systems of the jobs that run",
           "systemctl edit slurmd: [Service] KillMode=process, as Slurm's own unit has it; then "
           "systemctl daemon-reload"}};
}

Finding judge_directory(const std::string& what, const std::string& path, bool must_be_root) {
  if (!answers(path, patience)) {
    return silent(what, path);
  }
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) {
    return {Level::problem, what, path + " is not there, or you may not look",
            "make it, for root or an account of the site's, with mode 0755"};
  }
  if (!S_ISDIR(st.st_mode)) {
    return {Level::problem, what, path + " is not a directory", ""};
  }
  if (must_be_root && st.st_uid != 0) {
    return {Level::problem, what, path + " does not belong to root: the plugin does not use it",
            "chown root " + path};
  }
  if ((st.st_mode & 022) != 0) {
    return {Level::problem, what, path + " can be changed by others: it is not used",
            "chmod go-w " + path};
  }
  return {Level::ok, what, path, ""};
}

Findings examine_slurm() {
  if (!has_slurm()) {
    return {{Level::ok, "Slurm", "there is no scontrol here: nothing to look at", ""}};
  }
  const auto asked = slurm_config();
  if (!asked) {
    return {{Level::warning, "Slurm",
             "scontrol show config fails: slurmctld cannot be asked, or this machine belongs to no "
             "cluster",
             "run efs doctor again where scontrol works"}};
  }
  const Config& config = *asked;
  const std::string plugstack = value_of(config, "PlugStackConfig");
  const PluginLine line = find_plugin_line(plugstack);
  Findings found = judge_slurm_config(config, usual_staging + longest_wait_of(line));
  add_findings(found, judge_slurmd_unit(slurmd_unit()));
  add_findings(found, examine_plugin(config, line, plugstack));
  return found;
}

}  // namespace efs::cli
