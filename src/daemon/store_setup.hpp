// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Turns the backends of a job file into a ready store: finds the directories, enforces the capacity
// and selects the I/O path.

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/user.hpp"
#include "config/job_config.hpp"
#include "daemon/supervisor_client.hpp"
#include "image/manifest.hpp"

namespace efs::daemon {

/// A backend other than the first one.
struct StoreMember {
  std::string id, path, kind;
  std::string directory;                       // like Store::directory
  UniqueFd root;                               // contains data, a manifest and a lock
  UniqueFd lock;                               // held while the store is in use
  std::vector<UniqueFd> kept_from_cleaners{};  // from keep_cleaners_out()
};

struct Store {
  std::unique_ptr<Backend> backend;  // all backends as one
  UniqueFd metadata;                 // the directory of the journal
  std::string directory;  // remove it at the end; "" if the store disappears with its tmpfs
  std::string path;       // the directory with meta and data
  std::string kind;
  UniqueFd lock;                             // held while the store is in use
  std::vector<UniqueFd> kept_from_cleaners;  // from keep_cleaners_out()
  // an earlier instance of this name or a predecessor left it: it has data
  bool left = false;
  // a process died while it removed the store; the contents of other backends are invalid, too
  bool was_removed = false;
  store::InstanceId removed;          // the id of the removed instance, if it is known
  image::Manifest manifest;           // of the earlier instance, if the store was left
  store::InstanceId instance;         // of the instance that created the store
  store::InstanceId life;             // Manifest::life of this instance
  std::uint64_t memory_capacity = 0;  // Manifest::memory_capacity of this instance
  std::vector<StoreMember> others;
};

struct SetUp {
  const config::JobConfig& config;
  const std::string& instance;  // the instance's directory
  bool privileged = false;
  bool takeover = false;  // in a successor: a backend without a declared capacity keeps its size
  // binding only for a backend with its own tmpfs; elsewhere the mount options of the file system
  // apply
  AccessTimes access_times = AccessTimes::relative;
  SupervisorClient& supervisor;
};

/// Creates or opens the store by the rules of docs/dev/staging.md. A store in memory gets its own
/// tmpfs if the supervisor can mount one; otherwise the daemon counts its bytes. On other file
/// systems the `enforce` of the job file applies. Reopens a store that an earlier instance of this
/// name, or a predecessor, left with all its backends. Fails with EEXIST if the store belongs to
/// another job, and with ENOENT if one of its backends is gone.
Result<Store> set_up_store(const SetUp& how);

/// The state of an instance that goes into its manifests.
struct Standing {
  image::ShutdownState left = image::ShutdownState::in_use;
  bool made_mount_dir = false;
  std::uint64_t journal_to = 0;  // the last durable record; 0: unknown
  std::string contents{};        // Manifest::contents
};

/// Writes the manifests (src/image/manifest.hpp) to the store, to each backend and to the
/// instance's directory. With `in_use` also writes the job file.
Status write_manifests(const Store& store, const config::JobConfig& config,
                       const std::string& instance, const Standing& standing);

/// Removes what set_up_store() created in directories that the job file names.
void remove_store(const Store& store);
/// Removes one such directory; "": does nothing.
void remove_store(const std::string& directory);

}  // namespace efs::daemon
