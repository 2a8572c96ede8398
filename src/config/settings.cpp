// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "config/keys.hpp"
#include "config/validate.hpp"

namespace efs::config {
namespace {

constexpr std::size_t longest_name = 64;

bool is_name_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// "/jobs/My job.yaml" -> "My-job".
std::string default_name(std::string_view file) {
  if (const auto slash = file.rfind('/'); slash != file.npos) {
    file.remove_prefix(slash + 1);
  }
  if (const auto dot = file.rfind('.'); dot != file.npos && dot > 0) {
    file = file.substr(0, dot);
  }
  std::string name;
  for (const char c : file.substr(0, longest_name)) {
    name += is_name_character(c) ? c : '-';
  }
  name.erase(0, std::min(name.find_first_not_of(".-"), name.size()));
  return name.empty() ? "job" : name;
}

std::string read_name(const Section& settings, const std::string& file, ProblemList& problems) {
  const auto* value = settings.find("name");
  if (!value) {
    return default_name(file);
  }
  const std::string& name = value->text;
  if (value->open) {
    return name;
  }
  bool good = name.size() <= longest_name && !name.starts_with('.') && !name.starts_with('-');
  for (const char c : name) {
    good = good && is_name_character(c);
  }
  if (!good) {
    problems.add(value->mark, "'name' is " + in_quotes(name) + ", which cannot name an instance",
                 "1 to 64 of A-Z a-z 0-9 . _ -, not beginning with . or -; for example " +
                     in_quotes(default_name(name)));
  }
  return name;
}

bool is_open(const Section& settings, std::string_view key) {
  const auto* value = settings.find(key);
  return value != nullptr && value->open;
}

}  // namespace

void read_settings(const Section& settings, const std::string& file, JobConfig& config,
                   ProblemList& problems) {
  config.source = file;
  config.name = read_name(settings, file, problems);
  read_keys(settings, settings_keys(), config, problems);
  config.root_open = is_open(settings, "root-dir");
  config.results_open = is_open(settings, "results-dir");
  if (!config.in_place || settings.find("results-dir") || settings.bad.contains("results-dir")) {
    return;
  }
  config.results_dir = config.root_dir;
  config.results_open = config.root_open;
}

}  // namespace efs::config
