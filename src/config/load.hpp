#pragma once
// Job file (YAML) -> JobConfig. Accepts the ancestor's published grammar (flow sequences of
// single-pair maps, its suffixes and type names) and the natural block form of the same keys;
// efs-job.5 is the reference.

#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/job_config.hpp"
#include "config/surroundings.hpp"

namespace efs::config {

/// One problem of a job file. Lines and columns count from 1; 0 where none applies.
struct Problem {
  int line = 0;
  int column = 0;
  std::string text;        // what is wrong, naming the key or value
  std::string suggestion;  // the way out, "" where there is none
  // what the lines are of, where it is not the job file: the site file, "EFS_WORKERS" ...
  std::string origin;
};

/// "FILE:LINE:COLUMN: text (suggestion)"; with the problem's own origin in the place of `file`,
/// where it has one.
std::string to_string(const Problem& problem, std::string_view file);

/// Values given on the command line; they win over everything else, and are taken as they are: the
/// shell has expanded what there was to expand.
struct Overrides {
  std::optional<std::string> name, root_dir, mount_dir, results_dir, log_file, trace;
  // KEY and VALUE of any key of global-settings (--set)
  std::vector<std::pair<std::string, std::string>> settings;
};

/// Parses and validates; reports all problems, not only the first. `file` is for messages and the
/// default name. Relative paths are relative to the working directory. Touches no path that the
/// file names. Without `surroundings` there is no environment and no site file.
std::expected<JobConfig, std::vector<Problem>> parse(const std::string& text,
                                                     const std::string& file,
                                                     const Overrides& overrides = {},
                                                     const Surroundings& surroundings = {});

/// Reads `file` and parses it; an unreadable file is one Problem.
std::expected<JobConfig, std::vector<Problem>> load(const std::string& file,
                                                    const Overrides& overrides = {},
                                                    const Surroundings& surroundings = {});

/// The files that a job's configuration is made of, as they were read.
struct ReadFiles {
  std::string job;        // its text
  std::string site_file;  // its path; "": there is none
  std::string site;       // its text
};

/// Reads the job file and the site file that this process's environment names, each once. What
/// cannot be read is a problem. `text`: of a job file that has been read already, from a pipe.
std::expected<ReadFiles, std::vector<Problem>> read_files(
    const std::string& file, const std::optional<std::string>& text = {});

/// How the programs load a job file.
struct Loading {
  bool before_job = false;  // when it is submitted
  std::string directory;    // as in Surroundings
};

/// load() as the programs do it: for a job of `user`, with this process's environment and the site
/// file.
std::expected<JobConfig, std::vector<Problem>> load_for_user(const std::string& file,
                                                             const Overrides& overrides,
                                                             const User& user,
                                                             const Loading& how = {});

/// The same of what read_files() has read of `file`, now or at another time.
std::expected<JobConfig, std::vector<Problem>> parse_for_user(const ReadFiles& read,
                                                              const std::string& file,
                                                              const Overrides& overrides,
                                                              const User& user,
                                                              const Loading& how = {});

/// parse() of a job file that load_for_user() once read, by somebody else and later: with what was
/// around it then, and the site file of now, unless the file does not go with that any more.
std::expected<JobConfig, std::vector<Problem>> reload(const std::string& text,
                                                      const std::string& file,
                                                      const Overrides& overrides,
                                                      const Circumstances& circumstances);

/// "2 GiB", "3.5TB", "100 MB", "4096": bytes. KiB to EiB are binary; KB K to EB E decimal; capitals
/// do not matter.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// A size as --mem of sbatch has it: "500" and "500M" are 500 MiB, "4G" is 4 GiB; else as
/// parse_size().
std::optional<std::uint64_t> parse_memory(std::string_view text);

/// "500 MB/s", "1.5GiB/s", "4096": bytes per second, written as a size with or without "/s".
std::optional<std::uint64_t> parse_rate(std::string_view text);

}  // namespace efs::config
