// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The -o options of `efs start`, efsd and mount(8).

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "config/job_config.hpp"

namespace efs::config {

/// Flags of a mount; the supervisor accepts suid and dev from root only.
enum MountFlag : std::uint64_t {
  mount_suid = 1,
  mount_dev = 2,
  mount_noexec = 4,
  mount_noatime = 8,
  mount_readonly = 16,
  mount_strictatime = 32
};

struct MountOptions {
  std::uint64_t flags = 0;  // MountFlag bits
  bool daemon_io = false;
  // The kernel collects writes, and sends them to the daemon later. Excludes passthrough.
  bool writeback = false;
  // microseconds that the daemon polls for the next request before it sleeps; 0: none
  std::uint32_t spin = 50;
  bool join_callers = true;  // the daemon serves a caller that is bound to a CPU on that CPU
  std::string source;        // fsname=
  // mode of the root directory of a new file system; nullopt: root-dir's
  std::optional<std::uint32_t> mode;
};

AccessTimes access_times(std::uint64_t flags);

/// The options that have an effect, separated by commas; one with a value ends with "=".
std::string mount_option_names();
/// Parses a comma-separated list. EINVAL with a text for an unknown option.
Result<MountOptions> parse_mount_options(const std::string& list);
/// EINVAL with a text if the options contradict the job.
Status check_mount_options(const MountOptions& options, const JobConfig& job);

}  // namespace efs::config
