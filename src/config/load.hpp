// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Job file (YAML) -> JobConfig. Accepts two grammars: the ancestor's published one (flow sequences
// of single-pair maps, its suffixes and type names) and the natural block form of the same keys.
// efs-job.5 is the reference.

#include <chrono>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/job_config.hpp"
#include "config/surroundings.hpp"

namespace efs::config {

/// A problem in a job file. Lines and columns count from 1; 0 if none applies.
struct Problem {
  int line = 0;
  int column = 0;
  std::string text;        // the error, with the key or value
  std::string suggestion;  // the remedy; "" if there is none
  // the source of the line if it is not the job file: the site file, "EFS_WORKERS" ...
  std::string origin;
};

using Problems = std::vector<Problem>;
template <typename T>
using Checked = std::expected<T, Problems>;

/// "FILE:LINE:COLUMN: text (suggestion)". The problem's origin, if set, replaces `file`.
std::string to_string(const Problem& problem, std::string_view file);

/// Values from the command line. They win over all others and are not expanded: the shell has
/// already expanded them.
struct Overrides {
  std::optional<std::string> name, root_dir, mount_dir, results_dir, log_file, trace;
  // KEY and VALUE of any key in global-settings (--set)
  std::vector<std::pair<std::string, std::string>> settings;
};

/// Parses and validates; reports all problems, not only the first. `file` is for messages and the
/// default name. Relative paths are relative to the working directory. Accesses no path that the
/// file names. Without `surroundings`, the environment is empty and there is no site file.
Checked<JobConfig> parse(const std::string& text, const std::string& file,
                         const Overrides& overrides = {}, const Surroundings& surroundings = {});

/// Reads `file` and parses it; an unreadable file is one Problem.
Checked<JobConfig> load(const std::string& file, const Overrides& overrides = {},
                        const Surroundings& surroundings = {});

/// The text of the files that a job's configuration is made of.
struct ReadFiles {
  std::string job;        // its text
  std::string site_file;  // its path; "": no site file
  std::string site;       // its text
};

/// Reads the job file and the site file of this process's environment, each once. An unreadable
/// file is a problem. `text` is a job file that was already read, from a pipe.
Checked<ReadFiles> read_files(const std::string& file, const std::optional<std::string>& text = {});

/// How a program loads a job file.
struct Loading {
  bool before_job = false;  // the job is being submitted
  std::string directory;    // as in Surroundings
};

/// load() for a job of `user`, with this process's environment and the site file.
Checked<JobConfig> load_for_user(const std::string& file, const Overrides& overrides,
                                 const User& user, const Loading& how = {});

/// The same for files that read_files() has read, now or earlier.
Checked<JobConfig> parse_for_user(const ReadFiles& read, const std::string& file,
                                  const Overrides& overrides, const User& user,
                                  const Loading& how = {});

/// parse() for a later process, for a job file that load_for_user() once read. Uses the
/// circumstances of that time and the current site file. Ignores the site file if the job file now
/// contradicts it.
Checked<JobConfig> reload(const std::string& text, const std::string& file,
                          const Overrides& overrides, const Circumstances& circumstances);

/// "2 GiB", "3.5TB", "100 MB", "4096": bytes. KiB to EiB are binary; KB K to EB E are decimal; case
/// does not matter.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// "30 s", "10 min", "2 h", "1 d".
std::optional<std::chrono::seconds> parse_time(std::string_view text);

/// A size as in --mem of sbatch: "500" and "500M" are 500 MiB, "4G" is 4 GiB; else as parse_size().
std::optional<std::uint64_t> parse_memory(std::string_view text);

/// "500 MB/s", "1.5GiB/s", "4096": bytes per second; a size with or without "/s".
std::optional<std::uint64_t> parse_rate(std::string_view text);

}  // namespace efs::config
