#pragma once
// The mount of an instance: made over a directory of the user's, by mount(2) where we are root and
// by fusermount3 where not, and taken away again. The supervisor's: it has the privilege, and
// outlives the workers. Not thread-safe.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {

class Mount {
 public:
  /// For this user. `fuse_device`: /dev/fuse, opened before privilege was dropped; needed, and
  /// used, only where `privileged`.
  Mount(uid_t uid, gid_t gid, bool privileged, UniqueFd fuse_device)
      : uid_(uid), gid_(gid), privileged_(privileged), fuse_device_(std::move(fuse_device)) {}

  /// May `point` be mounted over? The rule of fusermount: a user mounts over a directory that is
  /// his own. EPERM, ENOTDIR, ENODEV.
  Status check(const UniqueFd& point) const;
  /// Mounts over `point`, by the name that it has now; `flags`: config::MountFlag bits. EBUSY where
  /// it is mounted already, or something else has been mounted there meanwhile.
  Status make(const UniqueFd& point, std::uint64_t flags, const std::string& source);
  /// Never lazily: EBUSY while it is in use. Ok where somebody else has unmounted it.
  Status unmount();
  /// At any price, and in use or not: programs that hold it get an error, not a hang.
  void detach();

  bool is_mounted() const { return !point_.empty(); }

  /// The connection to the kernel, from make() to its end; it ends with its last descriptor.
  const UniqueFd& fuse() const { return fuse_; }

  /// In a child, in which the connection must not live on.
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
  std::string point_;  // as mounted, while mounted
  // O_PATH: the directory that holds the mount point; paths of users are not walked again
  UniqueFd parent_;
  dev_t device_ = 0;  // of the mount
};

}  // namespace efs::daemon
