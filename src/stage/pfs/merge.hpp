// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Merges the results of several nodes into one directory. No node overwrites the file of another
// node (merging_publisher.hpp).

#include <functional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/pfs/rename.hpp"

namespace efs::stage {

/// The versions that this node has exported according to `items`, for `own`.
std::vector<fs::Origin> saved_copies(std::span<const fs::WalkItem> items);

enum class Placed : std::uint8_t { ours, shared };

/// The rename of merging_publisher(). ESTALE if another file has the name `from` after the rename.
/// EAGAIN if other nodes prevent the rename from finishing. `own`: the attributes of one more file
/// that it may replace; may be null.
Result<Placed> rename_merging(PfsIo& pfs, const Rename& names, Nanoseconds since,
                              const struct stat* own = nullptr, const AboutToName& about_to = {});

/// Calls `give`, which is to rename over the file `seen`. EEXIST, without the call, if that file
/// has changed, has gained or lost a name, or no longer has this name. `ours`: the attributes of
/// `from`. If processes on several nodes saw the same file, only the process with the claim to the
/// name succeeds (name_claim.hpp); errors of the claim are returned.
Status rename_over(PfsIo& pfs, const Rename& names, const struct stat& ours,
                   const struct stat& seen, const std::function<Status()>& give);

/// Removes an input under the same conditions. `claimant`: as in NameClaim.
Status remove_over(PfsIo& pfs, PfsRef at, const std::string& name, const struct stat& seen,
                   const std::string& claimant);

/// The clock of the file system that holds `directory`: the time stamp of a file made there and
/// removed again.
Result<Nanoseconds> pfs_now(const std::string& directory);

}  // namespace efs::stage
