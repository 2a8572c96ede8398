#pragma once
// The command that goes on with what an instance has left, as people can paste it.

#include <string>
#include <vector>

namespace efs::config {

/// `words`, as JobConfig::start_options: of the environment NAME=VALUE, and then options. `job_file` "": it is not known.
std::string start_command(const std::string& job_file, const std::vector<std::string>& words);

}  // namespace efs::config
