#include "config/start_command.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace efs::config {

std::string start_command(const std::string& job_file, const std::vector<std::string>& words) {
  const auto is_option = [](const std::string& word) { return word.starts_with('-'); };
  const auto options = std::ranges::find_if(words, is_option);
  std::string command = options == words.begin() ? "" : "env ";
  for (auto word = words.begin(); word != options; ++word) command += as_word(*word) + " ";
  command += "efs start ";
  for (auto word = options; word != words.end(); ++word) command += as_word(*word) + " ";
  return command + (job_file.empty() ? "JOBFILE" : as_word(job_file));
}

}  // namespace efs::config
