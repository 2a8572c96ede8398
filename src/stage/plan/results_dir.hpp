// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks before the import that results-dir can take results and is separate from the inputs.
// (input_guard.hpp checks again before a result replaces a file.)

#include <sys/stat.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Identifies a directory independent of its name: device and inode.
using Identity = std::pair<dev_t, ino_t>;

inline Identity identity_of(const struct stat& st) {
  return {st.st_dev, st.st_ino};
}

/// Directories of inputs, with their paths below root-dir.
struct InputDirectories {
  bool root = false;                      // all of root-dir is an input
  std::map<Identity, std::string> whole;  // all of these are inputs
  std::map<Identity, std::string> above;  // these contain named inputs
};

struct ResultsDirProblem {
  std::string path;
  std::string reason;
};

/// Reads and never writes. `root`: root-dir, open and borrowed, or none if it could not be opened;
/// inputs are then not checked. Returns an empty list if results-dir can take results, or if the
/// job has none. If results-dir has patterns that only the job's nodes can expand, checks the
/// directory above the patterns.
std::vector<ResultsDirProblem> check_results_dir(const config::JobConfig& config, PfsIo& pfs,
                                                 PfsRef root, const InputDirectories& inputs);

/// The mount point of the file system on which `results_dir` is, or would be made. ENOENT if the
/// mount point is not visible (chroot).
Result<std::string> mount_point_of(const std::string& results_dir, PfsIo& pfs);

/// The mount points below results-dir, relative to it, except this job's own.
std::vector<std::string> mounts_below(const config::JobConfig& config);

/// ESTALE if results-dir's file system was mounted when the instance began and is no longer
/// mounted. Results would go to the directory under the mount point, where no user looks for them.
/// Succeeds if the mount point is not known.
Status check_mounted(const config::JobConfig& config, PfsIo& pfs);

/// The same for the mounts below results-dir (JobConfig::mounts_below). Checks those for which
/// `is_used` is true: the stage-out exports or removes files there.
Status check_mounted_below(const config::JobConfig& config, PfsIo& pfs,
                           const std::function<bool(const std::string& mount)>& is_used);

}  // namespace efs::stage
