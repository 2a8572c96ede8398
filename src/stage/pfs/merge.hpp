// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Merges the results of several nodes into one directory. No node overwrites the file of another
// node (merging_pfs.hpp).

#include <functional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The version of an exported copy, to be recorded. If another node may have exported the same
/// file, the version is unknown (ctime is 0), and no node may replace or remove the file. `there`:
/// the attributes of `name` in the open directory `at`.
fs::Origin copy_version(PfsIo& pfs, int at, const std::string& name, const struct stat& there);

/// The same for `path` below the directory `top`. Follows no symbolic link.
Result<fs::Origin> version_below(PfsIo& pfs, const std::string& top, const std::string& path);

/// The same for a partial that is about to get its name. `is_shared`: as in AboutToName.
fs::Origin coming_version(const struct stat& partial, bool is_shared);

/// The versions that this node has exported according to `items`, for `own`.
std::vector<fs::Origin> saved_copies(std::span<const fs::WalkItem> items);

enum class Placed : std::uint8_t { ours, shared };

/// The file `from` of the open directory `at` and the name that it is to get there. Borrows the
/// names.
struct Rename {
  int at = -1;
  const std::string& from;
  const std::string& to;
};

/// The rename of merging_pfs(). ESTALE if another file has the name `from` after the rename. EAGAIN
/// if other nodes prevent the rename from finishing. `own`: the attributes of one more file that it
/// may replace; may be null.
Result<Placed> rename_merging(PfsIo& pfs, const Rename& names, Nanoseconds since,
                              const struct stat* own = nullptr, const AboutToName& about_to = {});

/// rename(2) over the file `seen`. EEXIST if that file has changed, has gained or lost a name, or
/// no longer has this name. `ours`: the attributes of `from`. If processes on several nodes saw the
/// same file, only the process with the claim to the name succeeds (name_claim.hpp); errors of the
/// claim are returned. `about_to` is called just before the rename.
Status rename_over(PfsIo& pfs, const Rename& names, const struct stat& ours,
                   const struct stat& seen, const std::function<void()>& about_to = {});

/// Removes an input under the same conditions. `claimant`: as in NameClaim.
Status remove_over(PfsIo& pfs, int at, const std::string& name, const struct stat& seen,
                   const std::string& claimant);

/// The clock of the file system that holds `directory`: the time stamp of a file made there and
/// removed again.
Result<Nanoseconds> pfs_now(const std::string& directory);

}  // namespace efs::stage
