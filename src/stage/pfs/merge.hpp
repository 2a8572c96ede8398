#pragma once
// Results of several nodes that go into one directory: no node's file is lost under another's
// (merging_pfs.hpp).

#include <functional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// What is there, of which this node's results-dir has a copy. Where another node may have it as
/// well, no version of it is known (ctime is 0): nobody's to replace or to remove. `there` is what
/// `name` in the open directory `at` has.
fs::Origin copy_version(PfsIo& pfs, int at, const std::string& name, const struct stat& there);

/// The same of what `path` below the directory `top` leads to, past no symbolic link.
Result<fs::Origin> version_below(PfsIo& pfs, const std::string& top, const std::string& path);

/// The same of a partial that is about to get its name. `is_shared`: as AboutToName says.
fs::Origin coming_version(const struct stat& partial, bool is_shared);

/// What `items` say that was put there, for `own`.
std::vector<fs::Origin> saved_copies(std::span<const fs::WalkItem> items);

enum class Placed : std::uint8_t { ours, shared };

/// The rename of merging_pfs(). ESTALE where another file has the name `from` in the end; EAGAIN
/// where other nodes keep it from an end. `own`: a file that it replaces as well, as it was seen;
/// null: none.
Result<Placed> rename_merging(PfsIo& pfs, int at, const std::string& from, const std::string& to,
                              Nanoseconds since, const struct stat* own = nullptr,
                              const AboutToName& about_to = {});

/// rename(2) over the file `seen`, which is there still: EEXIST where it has been changed, has got
/// or lost another name, or another one has this one by now. `ours`: what `from` is. Of several who
/// saw the same file, on whatever node, one succeeds: who has the claim to the name
/// (name_claim.hpp), whose errors are told. `about_to` is called when nothing stands between but
/// the call.
Status rename_over(PfsIo& pfs, int at, const std::string& from, const std::string& to,
                   const struct stat& ours, const struct stat& seen,
                   const std::function<void()>& about_to = {});

/// The removal of an input, likewise. `claimant`: as of NameClaim.
Status remove_over(PfsIo& pfs, int at, const std::string& name, const struct stat& seen,
                   const std::string& claimant);

/// The clock of the file system that holds `directory`: the time stamp of a file made there and
/// removed again.
Result<Nanoseconds> pfs_now(const std::string& directory);

}  // namespace efs::stage
