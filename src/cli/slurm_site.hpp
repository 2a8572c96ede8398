// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads the Slurm configuration of the site: slurmctld's settings, the plugin's line in
// plugstack.conf, and the state of a job.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace efs::cli {

using SlurmConfig = std::map<std::string, std::string>;

bool has_slurm();
/// Returns the output of `scontrol show config`; nullopt if slurmctld does not answer within 20 s.
std::optional<SlurmConfig> slurm_config();
/// Parses "KEY = VALUE" lines.
SlurmConfig parse_slurm_config(std::string_view text);
/// Returns systemd's properties of slurmd on this machine; empty if systemd does not know slurmd.
SlurmConfig slurmd_unit();
/// Returns "" if the key is not set.
std::string value_of(const SlurmConfig& config, const std::string& key);

/// The line of plugstack.conf that loads the plugin.
struct PluginLine {
  bool required = false;
  std::string plugin;  // as in the file: a path, or a name below PluginDir
  std::map<std::string, std::string> arguments;  // KEY=VALUE
  std::vector<std::string> words;                // all words after the plugin
};

/// Searches plugstack.conf and the files that it includes. Returns the first line that loads the
/// plugin. `plugin` is "" if there is none.
PluginLine find_plugin_line(const std::string& plugstack);
/// Returns an argument of the line with %n replaced by the name of this machine; "" if the line has
/// no such argument.
std::string argument_of(const PluginLine& line, const std::string& key);
/// The same for the line of this machine. Returns "" also if this machine has no Slurm or slurmctld
/// does not answer.
std::string site_argument(const std::string& key);

/// The data of a job in slurmctld.
struct SlurmJob {
  unsigned id = 0;     // the job's own number, also for a task of an array
  std::string state;   // as squeue prints it: PENDING, RUNNING
  std::string reason;  // why the job waits: Resources, Priority, Licenses, Dependency
  std::string start;   // the actual or expected start time; "N/A" if unknown
  std::string array;   // the number of the job's array; the job's own number if it is in no array
  // the index in the array, the indices of the tasks that have not begun ("3-9%2"), or "N/A"
  std::string task;
};

/// `job` is a job number or ARRAY_TASK. Returns nullopt if slurmctld does not know the job, or does
/// not answer within 20 s.
std::optional<SlurmJob> ask_slurm(const std::string& job);
/// Returns all entries of an array: one for each task that has begun, and one for all other tasks.
std::vector<SlurmJob> ask_slurm_for_all(const std::string& job);
/// Parses a line ID|STATE|REASON|START or ID|STATE|REASON|START|ARRAY|TASK.
std::optional<SlurmJob> parse_slurm_job(std::string_view line);

}  // namespace efs::cli
