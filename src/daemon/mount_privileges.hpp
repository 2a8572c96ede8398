// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The privileged operations that the mount of a job needs, as an interface: a test mounts nothing.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "fuse/backing.hpp"
#include "fuse/session.hpp"

namespace efs::daemon {

/// Thread-safe.
class MountPrivileges : public fuse::BackingRegistrar {
 public:
  /// Unmounts `name` in `parent` if it is a dead mount of this user. Fails with EBUSY if the mount
  /// is alive.
  virtual Status drop_dead_mount(int parent, const std::string& name) = 0;
  virtual Status check_mount(int mount_point) = 0;
  /// Mounts over the directory `mount_point`. Returns the FUSE descriptor.
  virtual Result<UniqueFd> mount(int mount_point, std::uint64_t flags,
                                 const std::string& source) = 0;
  /// Fails with EBUSY while the mount is in use. Succeeds if it is already unmounted. `unusual`: a
  /// successor must wait until a client repeats the stop request.
  virtual Status unmount(bool unusual) = 0;
  /// Ends the connection by force: programs on the mount get errors instead of a hang.
  virtual void abort() = 0;
  /// Stores the INIT request for a successor: see fuse::Session::serve().
  virtual void keep_init(const fuse::InitRequest& init) = 0;
  /// A successor has answered a new request.
  virtual void report_progress() = 0;
};

}  // namespace efs::daemon
