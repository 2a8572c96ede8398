#pragma once
// The command that goes on with what an instance has left, as people can paste it.

#include <string>
#include <string_view>
#include <vector>

namespace efs::config {

/// `words`, as JobConfig::start_options: of the environment NAME=VALUE, and then options.
/// `job_file` "": it is not known; "-": it came from a pipe, and is to be given again.
std::string start_command(const std::string& job_file, const std::vector<std::string>& words);

/// Has the Slurm plugin started the instance of this name? Then nobody starts it by hand: its job
/// file, its place and its name are root's.
bool is_of_batch_job(std::string_view name);

/// How an instance is named behind `efs stop`, `efs salvage` and `efs clean`: --job N of a batch
/// job's, else its name.
std::string instance_argument(const std::string& name);

}  // namespace efs::config
