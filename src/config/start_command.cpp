// SPDX-License-Identifier: BSD-3-Clause
#include "config/start_command.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "config/read_file.hpp"

namespace efs::config {
namespace {

// Returns the job number in the plugin's name slurm-JOB.RESTART-NODE; "" for other names. The
// plugin also uses slurm-kept.UID.NAME-NODE, for an instance that outlives its job.
std::string_view job_in(std::string_view name) {
  constexpr std::string_view begin = "slurm-", digits = "0123456789";
  if (!name.starts_with(begin)) {
    return {};
  }
  name.remove_prefix(begin.size());
  const auto dot = name.find_first_not_of(digits);
  const auto dash = dot == 0 || dot == name.npos || name[dot] != '.'
                        ? name.npos
                        : name.find_first_not_of(digits, dot + 1);
  return dash != name.npos && dash > dot + 1 && name[dash] == '-' ? name.substr(0, dot)
                                                                  : std::string_view();
}

}  // namespace

bool is_of_batch_job(std::string_view name) {
  return !job_in(name).empty() || name.starts_with("slurm-kept.");
}

std::string instance_argument(const std::string& name) {
  const std::string_view job = job_in(name);
  return job.empty() ? as_word(name) : "--job " + std::string(job);
}

std::string start_command(const std::string& job_file, const std::vector<std::string>& words) {
  const auto is_option = [](const std::string& word) {
    return word.starts_with('-');
  };
  const auto options = std::ranges::find_if(words, is_option);
  std::string command = options == words.begin() ? "" : "env ";
  for (auto word = words.begin(); word != options; ++word) {
    command += as_word(*word) + " ";
  }
  command += "efs start ";
  for (auto word = options; word != words.end(); ++word) {
    command += as_word(*word) + " ";
  }
  if (job_file == standard_input) {
    return command + "- <JOBFILE";
  }
  return command + (job_file.empty() ? "JOBFILE" : as_word(job_file));
}

}  // namespace efs::config
