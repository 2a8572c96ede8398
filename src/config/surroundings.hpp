// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The inputs of a job file's values besides the file: the environment, the user, the node, the site
// file.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/user.hpp"

namespace efs::config {

struct Site;  // site.hpp

/// By default no variable is set and there is no site file.
struct Surroundings {
  std::function<std::optional<std::string>(const std::string& name)> variable;  // null: no variable
                                                                                // is set
  std::string user;  // name of the job's user; "" if unknown
  std::string home;  // the user's home directory
  std::string node;  // name of this node, without domain
  std::shared_ptr<const Site> site;
  // a batch job is being submitted: its number, its nodes and the like are not known yet
  bool before_job = false;

  std::string directory;  // base of relative paths; "": the working directory of this process

  /// Returns `path`; a relative path is prefixed with `directory` if that is set.
  std::string in_directory(const std::string& path) const {
    return directory.empty() || path.starts_with('/') ? path : directory + "/" + path;
  }

  std::optional<std::string> find(const std::string& name) const {
    return variable ? variable(name) : std::nullopt;
  }
};

/// Returns the bytes of memory that Slurm gave the current batch job on this node
/// (SLURM_MEM_PER_NODE, or SLURM_MEM_PER_CPU times SLURM_CPUS_ON_NODE). nullopt: the whole node, or
/// no batch job.
std::optional<std::uint64_t> memory_of_batch_job(const Surroundings& surroundings);

/// Returns the surroundings of this process, for the job of `user`; without the site file (see
/// load_site()).
Surroundings surroundings_of_process(const User& user);

}  // namespace efs::config
