#pragma once
// From the buffer to results_dir: what is persistent and dirty, whole or not at all under its real
// name.

#include "config/job_config.hpp"
#include "stage/buffer.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Stages out on threads that end before it returns. Requires: nobody writes to the buffer (the
/// mount is gone); a file that changes while it is read fails. Every error is one entry's; the
/// others go on, but after ENOSPC or EDQUOT no new file is begun, nor after a cancel. An entry is
/// staged-out only when its data, attributes and name are durable. The buffer is not changed, so
/// that it can be called again: partials of an earlier, killed call are replaced, and where
/// results_dir is root_dir, what that call brought out is recognised by its content.
Receipt stage_out(const config::JobConfig& config, Buffer& buffer, PfsIo& pfs,
                  const Options& options, Progress& progress);

}  // namespace efs::stage
