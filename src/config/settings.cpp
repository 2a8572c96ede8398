#include <algorithm>
#include <array>
#include <limits>

#include "config/paths.hpp"
#include "config/validate.hpp"

namespace efs::config {
namespace {

constexpr std::size_t longest_name = 64;
constexpr std::uint64_t least_transfer = 64u << 10, most_transfer = 64u << 20;
constexpr std::uint64_t least_cache = 1u << 20;
constexpr std::uint64_t least_access_log = 64u << 10;
constexpr int most_workers = 256;

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

bool read_in_place(const Section& settings, ProblemList& problems) {
  static constexpr std::array words{Word{"true", 1}, Word{"false", 0}, Word{"yes", 1},
                                    Word{"no", 0},   Word{"on", 1},    Word{"off", 0}};
  return read_word(settings, "in-place", words, false, problems);
}

std::string read_level(const Section& settings, const std::string& fallback,
                       ProblemList& problems) {
  static constexpr std::array words{Word{"error", 0}, Word{"warn", 1}, Word{"info", 2},
                                    Word{"debug", 3}};
  const auto* word = find_word(settings, "log-level", words, problems);
  return word ? std::string(word->name) : fallback;
}

bool is_open(const Section& settings, std::string_view key) {
  const auto* value = settings.find(key);
  return value != nullptr && value->open;
}

// Reads a directory. "/" is rejected: every file would be an input, or would be hidden or
// overwritten.
std::string read_directory(const Section& settings, std::string_view key, ProblemList& problems) {
  auto path = read_path(settings, key, problems);
  if (path != "/") {
    return path;
  }
  problems.add(settings.mark_of(key), in_quotes(key) + " must not be '/'",
               "name a directory of this job's own");
  return {};
}

}  // namespace

void read_cache(const Section& settings, JobConfig& config, ProblemList& problems) {
  config.cache = read_path(settings, "cache", problems);
  config.cache_capacity = read_size(settings, "cache-capacity", least_cache, no_limit, problems);
}

void read_settings(const Section& settings, const std::string& file, JobConfig& config,
                   ProblemList& problems) {
  config.source = file;
  config.name = read_name(settings, file, problems);
  settings.require("root-dir", problems);
  if (!settings.find("mount-dir") && !settings.malformed && !settings.bad.contains("mount-dir")) {
    problems.add(settings.mark, "'mount-dir' is missing from " + settings.title,
                 "add mount-dir: \"...\"; for a job of Slurm's the site says it: --at-submission");
  }
  config.root_dir = read_directory(settings, "root-dir", problems);
  config.mount_dir = read_directory(settings, "mount-dir", problems);
  config.results_dir = read_directory(settings, "results-dir", problems);
  config.root_open = is_open(settings, "root-dir");
  config.results_open = is_open(settings, "results-dir");
  config.in_place = read_in_place(settings, problems);
  config.log_file = read_path(settings, "log-file", problems);
  config.interleaving = read_path(settings, "interleaving", problems);
  read_cache(settings, config, problems);
  config.log_level = read_level(settings, config.log_level, problems);
  config.status_file = read_path(settings, "status-file", problems);
  config.trace = read_path(settings, "trace", problems);
  config.access_log = read_path(settings, "access-log", problems);
  config.access_log_size =
      read_size(settings, "access-log-size", least_access_log, no_limit, problems)
          .value_or(config.access_log_size);
  config.workers = static_cast<unsigned>(read_number(settings, "workers", 1, most_workers,
                                                     static_cast<int>(config.workers), problems));
  config.transfer_size =
      read_size(settings, "transfer-size", least_transfer, most_transfer, problems)
          .value_or(config.transfer_size);
  if (!config.in_place || settings.find("results-dir") || settings.bad.contains("results-dir")) {
    return;
  }
  config.results_dir = config.root_dir;
  config.results_open = config.root_open;
}

}  // namespace efs::config
