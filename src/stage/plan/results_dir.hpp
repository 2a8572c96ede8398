#pragma once
// Whether results-dir can take results, and whether it lies apart from the inputs: found before
// anything moves. (input_guard.hpp asks once more, when a result is about to take its place.)

#include <sys/stat.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// What a directory is, by whatever name: device and inode.
using Identity = std::pair<dev_t, ino_t>;

inline Identity identity_of(const struct stat& st) {
  return {st.st_dev, st.st_ino};
}

/// Directories that inputs come from, and where they are below root-dir.
struct InputDirectories {
  bool root = false;                      // root-dir comes with all that is in it
  std::map<Identity, std::string> whole;  // so do these
  std::map<Identity, std::string> above;  // hold named inputs
};

struct ResultsDirProblem {
  std::string path;
  std::string reason;
};

/// Reads, never writes. `root`: root-dir, open and borrowed, or -1 where it could not be opened:
/// then nothing is said of inputs. Empty: results-dir can take results, or there is none. Of
/// results-dir with patterns that only the job's nodes know, what lies above the patterns is looked
/// at.
std::vector<ResultsDirProblem> check_results_dir(const config::JobConfig& config, PfsIo& pfs,
                                                 int root, const InputDirectories& inputs);

/// Where the file system is mounted that `results_dir` lies on, or would lie on once it is made.
/// ENOENT where that is out of sight (chroot).
Result<std::string> mount_point_of(const std::string& results_dir, PfsIo& pfs);

/// What is mounted below results-dir, as paths relative to it; not what this job mounts there.
std::vector<std::string> mounts_below(const config::JobConfig& config);

/// ESTALE where nothing is mounted any more where results-dir's file system was when the instance
/// began: what is brought to the directory below is nowhere that anybody looks. Ok where that is
/// not known.
Status check_mounted(const config::JobConfig& config, PfsIo& pfs);

/// The same of what was mounted below results-dir (JobConfig::mounts_below), where something is to
/// go there, or to be removed: `is_used`.
Status check_mounted_below(const config::JobConfig& config, PfsIo& pfs,
                           const std::function<bool(const std::string& mount)>& is_used);

}  // namespace efs::stage
