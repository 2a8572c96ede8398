// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The PFS of a node that shares results-dir with other nodes.

#include <memory>
#include <span>

#include "base/clock.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The PFS for the stage-out of one of several nodes. Its rename replaces only files from before
/// `since` (the PFS's clock, before any node of the job could stage out), and these later files: a
/// file of another node with the same type, content, owner, mode and attributes (times may differ),
/// which then belongs to no node alone (is_shared()); an unmodified file that this object itself
/// has exported; and an unmodified file of `own`. For any other file it fails with EEXIST and
/// changes nothing. `own`: the versions exported by earlier processes of this node, the oldest
/// first. Its remove removes only the file that the caller saw. Each of these calls makes several
/// calls to `pfs`, which is borrowed and must outlive the object.
std::unique_ptr<PfsIo> merging_pfs(Nanoseconds since, std::span<const fs::Origin> own = {},
                                   PfsIo& pfs = posix_pfs());

}  // namespace efs::stage
