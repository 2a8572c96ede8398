#pragma once
// Results of several nodes that go into one directory: no node's file is lost under another's.

#include <memory>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "fs/staging.hpp"
#include "stage/pfs_io.hpp"

namespace efs::stage {

/// The PFS for the stage-out of one of several nodes. Its rename replaces only what was there before `since` (the PFS's
/// clock, before any node of the job could stage out). Of what was put there later, by another node: the same (type, content,
/// owner, mode and attributes; not the time) is replaced too, and belongs to no node alone from then on (is_shared());
/// anything else is EEXIST, and nothing is changed. What this object itself has put there it replaces, as long as nobody has
/// touched it, and so it does with `own`: what this node's earlier processes have put there, as it was then, the oldest first. It removes
/// only what was seen.
std::unique_ptr<PfsIo> merging_pfs(Nanoseconds since, std::span<const fs::Origin> own = {});

/// What is there, of which this node's results-dir has a copy. Where another node may have it as well, no version of it is
/// known (ctime is 0): nobody's to replace or to remove. `there` is what `name` in the open directory `at` has.
fs::Origin copy_version(PfsIo& pfs, int at, const std::string& name, const struct stat& there);

/// The same of a partial that is about to get its name. `is_shared`: as AboutToName says.
fs::Origin coming_version(const struct stat& partial, bool is_shared);

/// What `items` say that was put there, for `own`.
std::vector<fs::Origin> saved_copies(std::span<const fs::WalkItem> items);

enum class Placed : std::uint8_t { ours, shared };

/// Gives a file a name that nothing has: EEXIST. ESTALE where `from` is not `ours` any more. (Where there are neither renameat2(2) nor links,
/// what gets the name in that moment is replaced.)
Status give_new_name(int at, const std::string& from, const std::string& to, const struct stat& ours);

/// Its rename. ESTALE where another file has the name `from` in the end; EAGAIN where other nodes keep it from an end.
/// `own`: a file that it replaces as well, as it was seen; null: none.
Result<Placed> rename_merging(int at, const std::string& from, const std::string& to, Nanoseconds since, const struct stat* own = nullptr, const AboutToName& about_to = {});

/// Its removal of an input: EEXIST where another file than `seen` has the name by now. Where the PFS keeps no locks, a moment
/// between the look and the removal remains.
Status remove_merging(int at, const std::string& name, const struct stat& seen);

/// The clock of the file system that holds `directory`: the time stamp of a file made there and removed again.
Result<Nanoseconds> pfs_now(const std::string& directory);

}  // namespace efs::stage
