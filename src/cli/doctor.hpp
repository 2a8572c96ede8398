#pragma once
// efs doctor: what this node has and lacks for efs. Looks, and changes nothing. Each part returns
// what it found; what the caller may not look at is a warning that says so.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_bound.hpp"
#include "cli/slurm_site.hpp"
#include "config/job_config.hpp"

namespace efs::cli {

enum class Level : std::uint8_t { ok, warning, problem };
const char* name_of(Level level);

/// One line: `what` was looked at, what there is and what it means, and what to do ("" where
/// nothing is).
struct Finding {
  Level level = Level::ok;
  std::string what, text, advice;
};

using Findings = std::vector<Finding>;

/// Seconds that a directory has to answer: doctor does not hang on what it is to find.
inline constexpr int patience = 5;
/// Of a backend of a store whose first one, at `first`, is gone.
std::string without_journal(const std::string& first);
/// A job that says nothing has what the site gives to all.
inline constexpr const char* silent_job =
    "global-settings:\n  root-dir: /tmp/efs-doctor/in\n  mount-dir: /tmp/efs-doctor/mount\n  "
    "results-dir: /tmp/efs-doctor/out\n";
/// Of what does not.
Finding silent(const std::string& what, const std::string& path);

// The parts
/// Starts efsd, which shows its version and ends.
Findings examine_daemon();
Findings examine_kernel();
Findings examine_limits();
/// What a store in memory gets that declares no capacity; and in a job of `memory` bytes.
Findings examine_memory(std::optional<std::uint64_t> memory);
/// The site file and, where `job_file` is not "", that job's stores instead of the site's; of a job
/// of `memory` bytes.
Findings examine_stores(const std::string& job_file, std::optional<std::uint64_t> memory);
/// What removes files from stores in this directory by their age.
Findings examine_cleaning(const std::string& what, const std::string& directory);
/// What a logout removes or kills, where systemd-logind runs; `is_in_shared_memory`: a store may
/// lie below /dev/shm.
Findings examine_logout(bool is_in_shared_memory);
Findings examine_leftovers();
/// Stores in this directory, of the caller's or for root of anybody's, to which no instance leads:
/// /run was emptied, or is another's.
Findings lost_stores(const std::string& directory);
/// Empty where there is no Slurm.
Findings examine_slurm();

// What they judge by
/// `release` as uname(2) has it.
Finding judge_kernel(std::string_view release);
/// `state`: what the kernel says of its switch; "" where it has none.
Finding judge_uring(std::string_view state);

/// A job of `memory` bytes, on a node that leaves it `bound`: what its store in memory gets by the
/// site's share and limit.
Finding judge_job_memory(std::uint64_t memory, const MemoryBound& bound,
                         const config::JobConfig& site);

/// `staging`: seconds that a wait for a turn and a stage-in may take together.
Findings judge_slurm_config(const SlurmConfig& config, double staging);
/// What the plugin does not know, or cannot be, among the words of its line.
Findings judge_words(const PluginLine& line);
/// As slurmd_unit() has it; empty where there is none.
Findings judge_slurmd_unit(const SlurmConfig& unit);

/// The mount that `path` lies on; all "" where nothing is known.
struct MountOf {
  std::string point, type, options;  // of mount and file system together
};

MountOf mount_of(const std::string& path);
/// A store in the directory `path`, on that mount.
Finding judge_medium(const std::string& what, const std::string& path, const MountOf& mount);
/// The room it has, in bytes: what is free there and what the caller's quota leaves him, where he
/// has one.
Finding judge_room(const std::string& what, const std::string& path, std::uint64_t free,
                   std::optional<std::uint64_t> quota, std::optional<std::uint64_t> capacity);

/// A line of tmpfiles.d(5).
struct CleaningRule {
  char type = 0;
  std::string path, age;  // age: "": nothing is removed by it
};

std::vector<CleaningRule> parse_cleaning(const std::string& text);
/// Stores in `directory`. The first rule that cleans there is reported, unless one excludes the
/// stores.
Findings judge_cleaning(const std::string& what, const std::string& directory,
                        const std::vector<CleaningRule>& rules);
/// `settings`: as in logind.conf(5), the last of a key counts.
Findings judge_logout(const std::string& settings, bool is_in_shared_memory);
/// A directory that root hands to the plugin: there, root's or an account's of the site, closed to
/// others.
Finding judge_directory(const std::string& what, const std::string& path, bool must_be_root);

}  // namespace efs::cli
