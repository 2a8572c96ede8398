#pragma once
// Attributes of a result, as far as the PFS takes them.

#include <sys/types.h>

#include <string>

#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// What the PFS does not take or permit is told ("user.x: Operation not supported; ..."), not an
/// error: the data are worth more. Other errors are.
Result<std::string> set_xattrs(int fd, const fs::WalkItem& item, PfsIo& pfs);

/// The mode to give a file whose owner could not be set: no setuid or setgid bit for the wrong one.
mode_t safe_mode(mode_t mode, bool owner_is_right);

/// The group to give a new file or directory that came into being with the group `now`: the item's
/// where a program or the job file chose that, else what its directory handed down, or what a new
/// file of its owner gets.
gid_t group_of(const fs::WalkItem& item, gid_t now);

/// The mode of `item` once it has this owner and group: no setuid or setgid bit for a wrong one.
mode_t mode_of(const fs::WalkItem& item, uid_t uid, gid_t gid);

}  // namespace efs::stage
