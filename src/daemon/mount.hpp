// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The mount of an instance over a directory of the user. Root mounts with mount(2), other users
// with fusermount3. Belongs to the supervisor, which has the privilege and outlives the workers.
// Not thread-safe.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {

class Mount {
 public:
  /// `uid` and `gid` own the mount. `fuse_device`: /dev/fuse, opened before privilege was dropped;
  /// required and used only if `privileged`.
  Mount(uid_t uid, gid_t gid, bool privileged, UniqueFd fuse_device)
      : uid_(uid), gid_(gid), privileged_(privileged), fuse_device_(std::move(fuse_device)) {}

  /// Checks the rule of fusermount: a user may mount only over a directory of its own. Fails with
  /// EPERM, ENOTDIR or ENODEV.
  Status check(const UniqueFd& point) const;
  /// Mounts over `point` by its current name. `flags`: config::MountFlag bits. Fails with EBUSY if
  /// it is already mounted, or if another mount covers the point meanwhile.
  Status make(const UniqueFd& point, std::uint64_t flags, const std::string& source);
  /// Unmounts, but never lazily: fails with EBUSY while the mount is in use. Succeeds if another
  /// process has already unmounted it.
  Status unmount();
  /// Ends the mount even if it is in use: programs with open files get an error instead of a hang.
  void detach();

  bool is_mounted() const { return !point_.empty(); }

  /// The connection to the kernel. Valid from make() on. The connection ends when its last
  /// descriptor is closed.
  const UniqueFd& fuse() const { return fuse_; }

  /// Call this in a child: its copy of the descriptor must not keep the connection alive.
  void close_descriptors();

 private:
  Status make_by_helper(const UniqueFd& point, std::uint64_t flags, const std::string& source);
  std::string name() const;
  bool is_still_ours() const;
  int unmount_by_call(int flags) const;

  uid_t uid_;
  gid_t gid_;
  bool privileged_;
  UniqueFd fuse_device_;
  UniqueFd fuse_;
  std::string point_;  // the mounted path, while mounted
  // O_PATH: the parent of the mount point; avoids a second walk of a user's path
  UniqueFd parent_;
  dev_t device_ = 0;  // of the mounted file system
};

}  // namespace efs::daemon
