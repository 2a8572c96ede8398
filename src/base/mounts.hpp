// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Mounts of efs: dead mounts ("Transport endpoint is not connected" until they are unmounted),
// other mount points of the same file system, and mounts on top of them.

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.hpp"

namespace efs {

/// Returns whether `path` is a FUSE mount of efs of this user without a daemon. A mount that does
/// not answer for some seconds is not dead.
bool is_dead_mount(const std::string& path, uid_t owner);

/// The caller's knowledge about a mount.
struct DeadMount {
  /// The mount is dead. Only its owner can find this out if others may not access the mount.
  bool known = false;
  /// The source of a mount without a daemon, according to the lock of its instance; "": none. If
  /// the mount at this path has that source and does not answer, its connection outlived its
  /// daemon: the kernel cannot yet end a thread of that daemon (daemon/death_pipe.hpp).
  std::string unserved{};
};

/// Unmounts `name` in the directory `parent` (a descriptor; no path is walked again), and ends its
/// connection. Returns ok if there is no mount of efs of this user. Returns EBUSY, and changes
/// nothing, if the mount still answers or is silent. Root unmounts by umount2(2) and must have its
/// rights in effect; other users unmount by fusermount3. Waits some seconds for a silent mount.
Status drop_dead_mount(int parent, const std::string& name, uid_t owner,
                       const DeadMount& what = {});

/// The same by path.
Status drop_dead_mount(const std::string& path, uid_t owner, const DeadMount& what = {});

/// The default source of an instance's mount.
std::string usual_source(const std::string& instance);

/// Aborts the connection of a FUSE mount that only fusermount3 can unmount. Needs a mounted
/// fusectl(5), and the user must own the connection.
void abort_connection(dev_t device);

/// A mount of efs in this process's mount namespace.
struct EfsMount {
  std::string point;
  uid_t owner = 0;
};

std::vector<EfsMount> efs_mounts();

/// Returns whether a file system of this device is mounted at `point`, at the top or under another
/// mount. Reads this process's mount namespace and walks no path.
bool is_mounted_at(dev_t device, const std::string& point);

/// Returns whether this directory (a descriptor) is the root of a mount of efs, dead or not. Does
/// not query its file system.
bool is_root_of_efs(int directory);

/// Returns whether an access to `path` ends within `seconds`, with or without an error. A hard
/// mount of an absent server would wait for ever, so a child makes the access. The child is left
/// behind if it cannot be killed.
bool answers(const std::string& path, int seconds);

/// Returns the mount points at or below `path`, the mount point of an efs, in this process's mount
/// namespace.
std::vector<std::string> mounts_on(const std::string& path);

/// Returns the mount points below the directory `path` (absolute, without symbolic links) in this
/// process's mount namespace. Walks no path.
std::vector<std::string> mount_points_below(const std::string& path);

/// Returns the other mount points of the file system mounted at `path` that remain when `path` is
/// unmounted: bind mounts without propagation. Reads this process's mount namespace and walks no
/// path.
std::vector<std::string> other_places_of(const std::string& path);

}  // namespace efs
