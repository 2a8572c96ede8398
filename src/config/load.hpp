#pragma once
// Job file (YAML) -> JobConfig. Accepts the ancestor's published grammar (flow sequences of single-pair maps, its
// suffixes and type names) and the natural block form of the same keys; efs-job.5 is the reference.

#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.hpp"

namespace efs::config {

/// One problem of a job file. Lines and columns count from 1; 0 where none applies.
struct Problem {
  int line = 0;
  int column = 0;
  std::string text;        // what is wrong, naming the key or value
  std::string suggestion;  // the way out, "" where there is none
};

/// "FILE:LINE:COLUMN: text (suggestion)".
std::string to_string(const Problem& problem, std::string_view file);

/// Values given on the command line; they win over the file.
struct Overrides {
  std::optional<std::string> name, root_dir, mount_dir, results_dir, log_file;
};

/// Parses and validates; reports all problems, not only the first. `file` is for messages and the default name.
/// Relative paths are relative to the working directory. Touches no path that the file names.
std::expected<JobConfig, std::vector<Problem>> parse(const std::string& text, const std::string& file, const Overrides& overrides = {});

/// Reads `file` and parses it; an unreadable file is one Problem.
std::expected<JobConfig, std::vector<Problem>> load(const std::string& file, const Overrides& overrides = {});

/// "2 GiB", "3.5TB", "100 MB", "4096": bytes. KiB, MiB, GiB, TiB, PiB are binary; KB K MB M GB G TB T PB P decimal.
std::optional<std::uint64_t> parse_size(std::string_view text);

}  // namespace efs::config
