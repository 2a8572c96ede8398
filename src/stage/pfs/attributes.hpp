// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sets attributes of results as far as the PFS permits.

#include <sys/types.h>

#include <string>

#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Returns the attributes that the PFS rejects or forbids as text ("user.x: Operation not
/// supported; ..."). They are not an error, because the data matter more. Other errors are returned
/// as errors.
Result<std::string> set_xattrs(PfsRef file, const fs::WalkItem& item, PfsIo& pfs);

/// The mode for a file whose owner could not be set: without setuid and setgid bits if the owner is
/// wrong.
mode_t safe_mode(mode_t mode, bool owner_is_right);

/// The group for a new file or directory that was made with the group `now`. It is the item's group
/// if a program or the job file chose that group. Otherwise it is the group inherited from the
/// directory, or the default group of the owner.
gid_t group_of(const fs::WalkItem& item, gid_t now);

/// The mode of `item` with this owner and group: without setuid or setgid bits if they are wrong.
mode_t mode_of(const fs::WalkItem& item, uid_t uid, gid_t gid);

}  // namespace efs::stage
