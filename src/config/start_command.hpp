// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Returns the command that continues a stopped or dead instance, for people to paste.

#include <string>
#include <string_view>
#include <vector>

namespace efs::config {

/// `words` is JobConfig::start_options: NAME=VALUE of the environment, then options. `job_file`: ""
/// if unknown; "-" if it came from a pipe and the user must supply it again.
std::string start_command(const std::string& job_file, const std::vector<std::string>& words);

/// Returns whether the Slurm plugin started the instance of this name. Users do not start such an
/// instance by hand: root owns its job file, its directory and its name.
bool is_of_batch_job(std::string_view name);

/// Returns the argument of `efs stop`, `efs salvage` and `efs clean` for an instance: --job N for a
/// batch job, else its name.
std::string instance_argument(const std::string& name);

}  // namespace efs::config
