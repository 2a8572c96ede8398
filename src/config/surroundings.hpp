#pragma once
// What the values of a job file depend on besides the file: the environment, the user, the node,
// the site file.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/user.hpp"

namespace efs::config {

struct Site;  // site.hpp

/// The default is an empty world: no variable is set and there is no site file.
struct Surroundings {
  std::function<std::optional<std::string>(const std::string& name)> variable;  // null: none is set
  std::string user;  // name of the job's user, "" where he has none
  std::string home;  // his home directory
  std::string node;  // name of this node, without domain
  std::shared_ptr<const Site> site;
  // a batch job that is being submitted: its number, its nodes and the like are not known yet
  bool before_job = false;

  std::string directory;  // of relative paths; "": the working directory of this process

  /// `path`, with that directory before it where it is relative and one is given.
  std::string in_directory(const std::string& path) const {
    return directory.empty() || path.starts_with('/') ? path : directory + "/" + path;
  }

  std::optional<std::string> find(const std::string& name) const {
    return variable ? variable(name) : std::nullopt;
  }
};

/// Bytes of memory that Slurm gave the job in whose script this process runs, on this node
/// (SLURM_MEM_PER_NODE, or SLURM_MEM_PER_CPU for SLURM_CPUS_ON_NODE); nullopt: all that the node
/// has, or there is no such job.
std::optional<std::uint64_t> memory_of_batch_job(const Surroundings& surroundings);

/// Those of this process, for the job of `user`; without the site file (see load_site()).
Surroundings surroundings_of_process(const User& user);

}  // namespace efs::config
