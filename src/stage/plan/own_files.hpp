// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The files that efs makes on the PFS for this job. They are not inputs (efs-job(5), "What is not
// an input").

#include <sys/stat.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "config/job_config.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/plan/results_dir.hpp"

namespace efs::stage {

/// Why a file is not an input.
struct OwnFile {
  std::string reason;
  bool refused = false;  // a resource that names the file is an error; else it stages the file in
};

/// Not thread-safe.
class OwnFiles {
 public:
  /// Looks up the files and directories that the job file names. `root`: root-dir, open and
  /// borrowed.
  OwnFiles(const config::JobConfig& config, PfsIo& pfs, PfsRef root);

  /// Classifies `path`, relative to root-dir, by its name alone: a partial or a receipt. nullopt:
  /// an input. `mode`: its st_mode; 0 if unknown.
  std::optional<OwnFile> by_name(const std::string& path, mode_t mode) const;

  /// The same by name, by device and inode, and by the directory that holds it.
  std::optional<OwnFile> find(const std::string& path, const struct stat& attributes) const;

 private:
  /// Records the file or directory `path`, which `reason` describes. Also records its name, because
  /// a file may be replaced at any time.
  void add(const std::string& path, const std::string& reason);
  void add_name(const std::string& path, const std::string& reason);
  /// Records that directories of stores and caches below `directory` belong to efs.
  void add_stores(const std::string& directory, const std::string& reason);
  /// Classifies a file or directory by its last component and the directory that holds it.
  std::optional<OwnFile> in_directory(const std::string& path, const struct stat& attributes) const;
  std::optional<Identity> identity_of_parent(const std::string& path) const;

  const config::JobConfig& config_;
  PfsIo& pfs_;
  const PfsRef root_;
  std::map<Identity, std::string> known_;  // reasons
  // a name, and the directory that holds it
  std::map<std::string, std::map<Identity, std::string>> by_leaf_;
  // directories that hold stores or caches
  std::map<Identity, std::string> stores_;
};

}  // namespace efs::stage
