// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several backends: finds the directory of each and combines them into one device. Used by
// store_setup.cpp.

#include "backends/fsdax.hpp"
#include "daemon/store_setup.hpp"

namespace efs::daemon {

/// The location of one backend.
struct Ground {
  UniqueFd root;
  FsdaxOptions options;  // complete except for the directory
  std::string path;
  std::string directory;  // remove it at the end; "" if it disappears with its tmpfs
  bool left = false;      // an earlier instance left it
};

/// Finds or creates the location of backend `number`. With `must_be_there`, fails with ENOENT if it
/// does not exist.
Result<Ground> find_ground(const SetUp& how, unsigned number, bool must_be_there);

/// Fixes the capacity of a backend in memory that declares none and stores it in `store` for the
/// manifest. A backend of an earlier instance never shrinks.
void settle_capacity(const SetUp& how, unsigned number, Store& store, Ground& ground);

/// Opens backend `number`. Takes the options out of `ground`. Fails with EOPNOTSUPP if it must be
/// persistent memory (require-dax) and is not. A successor in a takeover serves it as it is.
Result<std::unique_ptr<Backend>> open_backend(const SetUp& how, unsigned number, Ground& ground);

/// Adds the other backends of the job file to the first one, which `store` already contains. Fails
/// with EEXIST if the stores left there belong to other backends, or if a backend has data that no
/// journal describes.
Status add_members(const SetUp& how, Store& store);

/// Locks this directory of a store for this worker and, through the supervisor, for its successors.
/// Fails with EBUSY if other processes hold the lock; `others` names them in the text. Fails with
/// EAGAIN if the previous holder has removed the store.
Result<UniqueFd> lock_of_store(SupervisorClient& supervisor, int directory, const std::string& path,
                               const std::string& others);

/// Takes shared locks (flock(2)) on the store's directory and its subdirectories. The supervisor
/// holds them, too. systemd-tmpfiles skips a directory that it cannot lock, with everything below
/// it. If a rule names the store itself, systemd-tmpfiles locks only the subdirectories. A refused
/// lock is logged.
std::vector<UniqueFd> keep_cleaners_out(SupervisorClient& supervisor, int root,
                                        const std::string& path);

/// image::was_over() for the manifest in this directory of an instance.
bool was_over(const std::string& instance, const image::Manifest& own);

/// Returns the members for the manifest; empty if there is only one backend.
std::vector<image::Member> manifests_of(const Store& store, const config::JobConfig& config);

}  // namespace efs::daemon
