// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The version of an exported copy, as the buffer records it.

#include <sys/stat.h>

#include <string>

#include "base/result.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/pfs/publisher.hpp"

namespace efs::stage {

/// If another node may have exported the same
/// file, the version is unknown (ctime is 0), and no node may replace or remove the file. `there`:
/// the attributes of `name` in the open directory `at`.
fs::Origin copy_version(PfsIo& pfs, Publisher& publisher, PfsRef at, const std::string& name,
                        const struct stat& there);

/// The same for `path` below the directory `top`. Follows no symbolic link.
Result<fs::Origin> version_below(PfsIo& pfs, Publisher& publisher, const std::string& top,
                                 const std::string& path);

/// The same for a partial that is about to get its name. `is_shared`: as in AboutToName.
fs::Origin coming_version(const struct stat& partial, bool is_shared);

}  // namespace efs::stage
