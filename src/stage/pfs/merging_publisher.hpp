// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The publisher of a node that shares results-dir with other nodes.

#include <memory>
#include <span>

#include "base/clock.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/publisher.hpp"

namespace efs::stage {

/// The publisher for the stage-out of one of several nodes. It looks at the name itself, so its
/// rules are never bound. It replaces only files from before `since` (the PFS's clock, before any
/// node of the job could stage out), and these later files: a file of another node with the same
/// type, content, owner, mode and attributes (times may differ), which then belongs to no node
/// alone (is_shared()); an unmodified file that this object itself has published; and an unmodified
/// file of `own`. For any other file it fails with EEXIST and changes nothing. `own`: the versions
/// exported by earlier processes of this node, the oldest first. The pace treats all calls of one
/// publish() or remove() as one.
std::unique_ptr<Publisher> merging_publisher(Nanoseconds since,
                                             std::span<const fs::Origin> own = {});

}  // namespace efs::stage
