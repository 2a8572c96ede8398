#pragma once
// From a job file's backend to a ready store: which directory, who holds the capacity, which path the I/O takes.

#include <memory>
#include <string>

#include "backends/backend.hpp"
#include "base/user.hpp"
#include "config/job_config.hpp"
#include "daemon/supervisor_client.hpp"
#include "image/manifest.hpp"

namespace efs::daemon {

struct Store {
  std::unique_ptr<Backend> backend;
  UniqueFd metadata;        // directory of the journal
  std::string directory;    // to be removed at the end; "" where the store goes with its tmpfs
  std::string path;         // of the directory that holds meta and data
  std::string kind;
  UniqueFd lock;            // held while the store is in use
  bool left = false;        // by an earlier instance of this name or a predecessor: its data are in it
  image::Manifest manifest; // where it was left: what that one wrote
};

/// Capacity by the rules of src/README.md: a store in memory gets a tmpfs of its own where the supervisor can make
/// one and is counted by the daemon where not; on other file systems the job file's `enforce` decides. A store that an
/// earlier instance of this name, or a predecessor, left is taken up again; EEXIST where it is another job's. `instance`:
/// its directory. `noatime` binds where the store is such a tmpfs; elsewhere the mount that it lies on decides.
Result<Store> set_up_store(const config::JobConfig& config, const std::string& instance, bool privileged, bool noatime, SupervisorClient& supervisor);

/// Writes what the store says of itself (src/image/manifest.hpp), there and in the instance's directory.
/// `in_use` writes the job file, too.
Status write_manifests(const Store& store, const config::JobConfig& config, const std::string& instance, image::Left left, bool made_mount_dir);

/// Removes what set_up_store made below Store::directory.
void remove_store(const std::string& directory);

}  // namespace efs::daemon
