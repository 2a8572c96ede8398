#pragma once
// From a job file's backend to a ready store: which directory, who holds the capacity, which path the I/O takes.

#include <memory>
#include <string>

#include "backends/backend.hpp"
#include "base/user.hpp"
#include "config/job_config.hpp"
#include "daemon/supervisor_client.hpp"

namespace efs::daemon {

struct Store {
  std::unique_ptr<Backend> backend;
  UniqueFd metadata;        // directory of the journal
  std::string directory;    // to be removed at the end; "" where the store goes with its tmpfs
};

/// Capacity by the rules of src/README.md: a store in memory gets a tmpfs of its own where the supervisor can make
/// one and is counted by the daemon where not; on other file systems the job file's `enforce` decides.
/// `noatime` binds where the store is such a tmpfs; elsewhere the mount that it lies on decides. `there`: the store
/// exists and is taken as it is.
Result<Store> set_up_store(const config::Backend& backend, const std::string& name, bool privileged, bool noatime, SupervisorClient& supervisor, bool there = false);

/// Removes what set_up_store made below Store::directory.
void remove_store(const std::string& directory);

}  // namespace efs::daemon
