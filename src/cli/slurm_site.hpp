#pragma once
// What this machine knows of its site's Slurm: slurmctld's settings, the plugin's line in
// plugstack.conf, and a job's state.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace efs::cli {

using SlurmConfig = std::map<std::string, std::string>;

bool has_slurm();
/// What `scontrol show config` says; absent where slurmctld does not answer within 20 s.
std::optional<SlurmConfig> slurm_config();
/// "KEY = VALUE" lines of it.
SlurmConfig parse_slurm_config(std::string_view text);
/// What systemd says of slurmd on this machine; empty where it knows none.
SlurmConfig slurmd_unit();
/// "" where it is not set.
std::string value_of(const SlurmConfig& config, const std::string& key);

/// The line of plugstack.conf that loads the plugin.
struct PluginLine {
  bool required = false;
  std::string plugin;                            // as written: a path, or a name below PluginDir
  std::map<std::string, std::string> arguments;  // KEY=VALUE
  std::vector<std::string> words;                // all that follow the plugin
};

/// From plugstack.conf and what it includes, the first of them; "" as `plugin` where none of them
/// loads it.
PluginLine find_plugin_line(const std::string& plugstack);
/// An argument of it, with %n replaced by this machine's name; "" where it is not there.
std::string argument_of(const PluginLine& line, const std::string& key);
/// The same of the line that this machine has; "" too where there is no Slurm, or slurmctld does
/// not answer.
std::string site_argument(const std::string& key);

/// What slurmctld knows of a job.
struct SlurmJob {
  unsigned id = 0;     // its own number, also of an array's task
  std::string state;   // as squeue writes it: PENDING, RUNNING
  std::string reason;  // why it waits: Resources, Priority, Licenses, Dependency
  std::string start;   // when it is to start, or has; "N/A" where nobody knows
  std::string array;   // the number of the array that it is a task of; its own where it is in none
  std::string task;    // its index there, those of tasks that have not begun ("3-9%2"), or "N/A"
};

/// `job`: a number, or ARRAY_TASK. Absent where slurmctld knows no such job (any more), or does not
/// answer within 20 s.
std::optional<SlurmJob> ask_slurm(const std::string& job);
/// Of an array all that slurmctld has: a line for each task that has begun, and one for those that
/// have not.
std::vector<SlurmJob> ask_slurm_for_all(const std::string& job);
/// From a line ID|STATE|REASON|START, of which ARRAY|TASK may be the rest.
std::optional<SlurmJob> parse_slurm_job(std::string_view line);

}  // namespace efs::cli
