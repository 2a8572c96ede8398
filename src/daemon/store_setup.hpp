#pragma once
// From a job file's backends to a ready store: which directories, who holds the capacity, which
// path the I/O takes.

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/user.hpp"
#include "config/job_config.hpp"
#include "daemon/supervisor_client.hpp"
#include "image/manifest.hpp"

namespace efs::daemon {

/// A backend behind the first one.
struct StoreMember {
  std::string id, path, kind;
  std::string directory;                       // as Store::directory
  UniqueFd root;                               // holds data, a manifest and a lock
  UniqueFd lock;                               // held while the store is in use
  std::vector<UniqueFd> kept_from_cleaners{};  // keep_cleaners_out()
};

struct Store {
  std::unique_ptr<Backend> backend;  // all of them as one
  UniqueFd metadata;                 // directory of the journal
  std::string directory;  // to be removed at the end; "" where the store goes with its tmpfs
  std::string path;       // of the directory that holds meta and data
  std::string kind;
  UniqueFd lock;                             // held while the store is in use
  std::vector<UniqueFd> kept_from_cleaners;  // keep_cleaners_out()
  // by an earlier instance of this name or a predecessor: its data are in it
  bool left = false;
  // somebody died while he removed it; what lies in other backends went with it
  bool was_removed = false;
  store::InstanceId removed;          // which instance's it was, where that can be told
  image::Manifest manifest;           // where it was left: what that one wrote
  store::InstanceId instance;         // that of the one that made it
  store::InstanceId life;             // Manifest::life, of this one
  std::uint64_t memory_capacity = 0;  // Manifest::memory_capacity, of this one
  std::vector<StoreMember> others;
};

struct SetUp {
  const config::JobConfig& config;
  const std::string& instance;  // its directory
  bool privileged = false;
  bool takeover = false;  // by a successor: what declares no capacity keeps the one that it has
  // binds where a backend is a tmpfs of its own; elsewhere the mount that it lies on decides
  AccessTimes access_times = AccessTimes::relative;
  SupervisorClient& supervisor;
};

/// Capacity by the rules of docs/dev/staging.md: a store in memory gets a tmpfs of its own where
/// the supervisor can make one and is counted by the daemon where not; on other file systems the
/// job file's `enforce` decides. A store that an earlier instance of this name, or a predecessor,
/// left is taken up again, with all of its backends; EEXIST where it is another job's, ENOENT where
/// one of them is gone.
Result<Store> set_up_store(const SetUp& how);

/// How things stand with an instance, for its manifests.
struct Standing {
  image::ShutdownState left = image::ShutdownState::in_use;
  bool made_mount_dir = false;
  std::uint64_t journal_to = 0;  // the last record that is durable by now; 0: nothing is known
  std::string contents{};        // Manifest::contents
};

/// Writes what the store says of itself (src/image/manifest.hpp), there, in each backend and in the
/// instance's directory. `in_use` writes the job file, too.
Status write_manifests(const Store& store, const config::JobConfig& config,
                       const std::string& instance, const Standing& standing);

/// Removes what set_up_store made in directories that were named.
void remove_store(const Store& store);
/// One of them; "": nothing.
void remove_store(const std::string& directory);

}  // namespace efs::daemon
