#pragma once
// Mounts whose daemon is dead: "Transport endpoint is not connected" until somebody unmounts them.

#include <sys/types.h>

#include <string>

#include "base/result.hpp"

namespace efs {

/// Is a FUSE mount of efs of this user at `path`, which nobody serves any more?
bool is_dead_mount(const std::string& path, uid_t owner);

/// Unmounts it: `name` in the directory `parent` (a descriptor; no path is walked again). Ok where there is no mount of
/// efs of this user; EBUSY where one is that still answers: nothing is done to it. By umount2(2) for root, who must have
/// his rights in effect, else by fusermount3.
Status drop_dead_mount(int parent, const std::string& name, uid_t owner);

/// The same by path, for the caller's own mounts.
Status drop_dead_mount(const std::string& path, uid_t owner);

}  // namespace efs
