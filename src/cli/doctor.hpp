// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// efs doctor reports the readiness of this node for efs. It changes nothing. Each part returns its
// findings. If the caller may not inspect an object, the finding is a warning that says this.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/durability.hpp"
#include "base/memory_bound.hpp"
#include "cli/pmem_devices.hpp"
#include "cli/slurm_site.hpp"
#include "config/job_config.hpp"

namespace efs::cli {

enum class Level : std::uint8_t { ok, warning, problem };
const char* name_of(Level level);

/// One line of the report: `what` is the object, `text` its state and the consequence, `advice` the
/// remedy or "".
struct Finding {
  Level level = Level::ok;
  std::string what, text, advice;
};

using Findings = std::vector<Finding>;

/// The time in seconds that a directory has to answer: a directory that hangs must not block
/// doctor.
inline constexpr int patience = 5;
/// Returns the text for a backend of a store whose first backend, at `first`, is gone.
std::string without_journal(const std::string& first);
/// A job file with only the required keys: all other settings come from the site file.
inline constexpr const char* silent_job =
    "global-settings:\n  root-dir: /tmp/efs-doctor/in\n  mount-dir: /tmp/efs-doctor/mount\n  "
    "results-dir: /tmp/efs-doctor/out\n";
void add_findings(Findings& found, Findings more);
/// Returns the finding for a path that does not answer.
Finding silent(const std::string& what, const std::string& path);

// Parts of the report
/// Starts efsd, which prints its version and exits.
Findings examine_daemon();
Findings examine_kernel();
Findings examine_limits();
/// Reports the size of a store in memory that declares no capacity: on this node, and in a job of
/// `memory` bytes.
Findings examine_memory(std::optional<std::uint64_t> memory);
/// Checks the site file and the site's stores. If `job_file` is not "", checks that job's stores
/// instead of the site's. `memory`: bytes of the job.
Findings examine_stores(const std::string& job_file, std::optional<std::uint64_t> memory);
/// Reports tmpfiles.d rules that remove old files from stores in this directory.
Findings examine_cleaning(const std::string& what, const std::string& directory);
/// Reports files and processes that systemd-logind removes at a logout, if systemd-logind runs.
/// `is_in_shared_memory`: a store may be below /dev/shm.
Findings examine_logout(bool is_in_shared_memory);
Findings examine_leftovers();
/// Reports stores in this directory without an instance: /run was emptied, or the instance is in
/// another machine's /run. Root gets the stores of all users, other callers get their own.
Findings lost_stores(const std::string& directory);
/// Empty if this machine has no Slurm.
Findings examine_slurm();
/// Reports the persistent memory of this node, and the commands that make a backend of it.
Findings judge_pmem(const PmemDevices& devices);

// Functions that turn inputs into findings
/// `release`: from uname(2).
Finding judge_kernel(std::string_view release);
/// `state`: the kernel's value of the io_uring switch; "": the kernel has no such switch.
Finding judge_uring(std::string_view state);
/// `governor`: of cpuidle. `halt_poll`: nanoseconds that an idle CPU of a virtual machine polls
/// before it halts; "" where the kernel has no such setting.
Finding judge_idle(std::string_view governor, std::string_view halt_poll);

/// Reports the size of a store in memory in a job of `memory` bytes on a node with the bound
/// `bound`, from the share and the limit of the site.
Finding judge_job_memory(std::uint64_t memory, const MemoryBound& bound,
                         const config::JobConfig& site);

/// `staging`: seconds that a job may need to wait for its turn and to import its inputs.
Findings judge_slurm_config(const SlurmConfig& config, double staging);
/// Reports words of the plugin's line that the plugin does not know or that have invalid values.
Findings judge_words(const PluginLine& line);
/// `unit`: from slurmd_unit(). The result is empty if `unit` is empty.
Findings judge_slurmd_unit(const SlurmConfig& unit);

/// The mount that contains `path`. All strings are "" if it is unknown.
struct MountOf {
  std::string point, type, options;  // options of the mount and of the file system
};

MountOf mount_of(const std::string& path);
/// Judges a store in the directory `path` on `mount` by the answers of its file system.
/// `require_dax`: the start of the job fails without DAX.
Finding judge_medium(const std::string& what, const std::string& path, const MountOf& mount,
                     const DurabilityProbe& probe, bool require_dax);
/// Judges the space for a store, in bytes: `free` is the free space of the file system, `quota` the
/// remaining space in the caller's quota, if the caller has one.
Finding judge_room(const std::string& what, const std::string& path, std::uint64_t free,
                   std::optional<std::uint64_t> quota, std::optional<std::uint64_t> capacity);

/// A line of tmpfiles.d(5).
struct CleaningRule {
  char type = 0;
  std::string path, age;  // age "": the rule does not remove old files
};

std::vector<CleaningRule> parse_cleaning(const std::string& text);
/// Judges the rules for stores in `directory`. Reports the first rule that cleans this directory,
/// unless a rule excludes the stores.
Findings judge_cleaning(const std::string& what, const std::string& directory,
                        const std::vector<CleaningRule>& rules);
/// `settings`: in the format of logind.conf(5). The last line with a key is valid.
Findings judge_logout(const std::string& settings, bool is_in_shared_memory);
/// Judges a directory that root passes to the plugin. The directory must exist, belong to root or
/// to an account of the site, and be closed to other users.
Finding judge_directory(const std::string& what, const std::string& path, bool must_be_root);

}  // namespace efs::cli
