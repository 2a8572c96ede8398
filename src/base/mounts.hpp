#pragma once
// Mounts whose daemon is dead ("Transport endpoint is not connected" until somebody unmounts them),
// where else one is, and what is on it.

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.hpp"

namespace efs {

/// Is a FUSE mount of efs of this user at `path`, which nobody serves any more? Not one that says
/// nothing for some seconds.
bool is_dead_mount(const std::string& path, uid_t owner);

/// What is known of a mount beforehand.
struct DeadMount {
  /// It is dead; of a mount that others may not look at only its owner learns that.
  bool known = false;
  /// The source of one that nobody serves, as the lock of its instance tells; "": none. Where what
  /// is there has it and does not answer, its connection outlived its daemon, in a thread of that
  /// which the kernel cannot end yet (daemon/death_pipe.hpp).
  std::string unserved{};
};

/// Unmounts it, and ends its connection: `name` in the directory `parent` (a descriptor; no path is
/// walked again). Ok where there is no mount of efs of this user; EBUSY where one is that still
/// answers, or is silent: nothing is done to it. By umount2(2) for root, who must have his rights
/// in effect, else by fusermount3. Waits some seconds for a silent one.
Status drop_dead_mount(int parent, const std::string& name, uid_t owner,
                       const DeadMount& what = {});

/// The same by path.
Status drop_dead_mount(const std::string& path, uid_t owner, const DeadMount& what = {});

/// What an instance is mounted with where nobody asked for another source.
std::string usual_source(const std::string& instance);

/// Ends the connection of a FUSE mount that only fusermount3 can unmount: where fusectl(5) is
/// mounted, and the user is its owner.
void abort_connection(dev_t device);

/// A mount of efs that this process's mount namespace has.
struct EfsMount {
  std::string point;
  uid_t owner = 0;
};

std::vector<EfsMount> efs_mounts();

/// Is a file system of this device mounted at `point`, on top or under something else? As this
/// process's mount namespace has it; no path is walked.
bool is_mounted_at(dev_t device, const std::string& point);

/// Is this directory (a descriptor) the root of a mount of efs, dead or not? Its file system is not
/// asked.
bool is_root_of_efs(int directory);

/// Whether a look at `path` comes to an end within `seconds`, however it ends: a hard mount of a
/// server that is away waits for ever. A child looks, and is left behind where it cannot even be
/// killed.
bool answers(const std::string& path, int seconds);

/// What is mounted, in this process's mount namespace, on the efs that is mounted at `path`, or in
/// it: the mount points.
std::vector<std::string> mounts_on(const std::string& path);

/// The mount points below the directory `path` (absolute, without symbolic links), in this
/// process's mount namespace. No path is walked.
std::vector<std::string> mount_points_below(const std::string& path);

/// Where else, in this process's mount namespace, the file system that is mounted at `path` is
/// mounted too, without going away when it is unmounted there (bind mounts; not those that
/// propagation made). No path is walked.
std::vector<std::string> other_places_of(const std::string& path);

}  // namespace efs
