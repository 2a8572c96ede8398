#pragma once
// The PFS of a node whose results go where those of other nodes go.

#include <memory>
#include <span>

#include "base/clock.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The PFS for the stage-out of one of several nodes. Its rename replaces only what was there
/// before `since` (the PFS's clock, before any node of the job could stage out). Of what was put
/// there later, by another node: the same (type, content, owner, mode and attributes; not the time)
/// is replaced too, and belongs to no node alone from then on (is_shared()); anything else is
/// EEXIST, and nothing is changed. What this object itself has put there it replaces, as long as
/// nobody has touched it, and so it does with `own`: what this node's earlier processes have put
/// there, as it was then, the oldest first. It removes only what was seen. What it asks `pfs`,
/// which has to live longer, is several calls for each of these.
std::unique_ptr<PfsIo> merging_pfs(Nanoseconds since, std::span<const fs::Origin> own = {},
                                   PfsIo& pfs = posix_pfs());

}  // namespace efs::stage
