// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The job file for a recorded program.

#include <string>
#include <vector>

#include "record/selection.hpp"
#include "record/summary.hpp"

namespace efs::record {

/// The run that was recorded.
struct Run {
  std::string job_file;  // for the commands in comments
  std::vector<std::string> command;
  std::string directory;  // the working directory of the program, absolute, without links
  std::string root_dir;   // as the job file names it, absolute
  std::string root;       // the same without links
  int exit_code = 0;
  std::uint64_t lost = 0;  // events that were not recorded
};

struct Sizes {
  std::uint64_t inputs = 0, results = 0, temporaries = 0;  // bytes
};

/// Bytes of the resources, results and temporary files.
Sizes sizes_of(const Summary& summary, const std::vector<Resource>& resources);

/// Returns the mount-dir, or the results-dir, that the job file suggests.
std::string mount_dir_of(const Run& run);
std::string results_dir_of(const Run& run);

/// Returns the words behind `efs run JOB_FILE --` that run the program on the mount: in the
/// directory that mirrors its own, and with paths below root-dir replaced by paths on the mount.
std::vector<std::string> command_on_mount(const Run& run);

/// Returns the text of the job file.
std::string write_job_file(const Run& run, const Summary& summary,
                           const std::vector<Resource>& resources, const std::vector<Rule>& rules);

}  // namespace efs::record
