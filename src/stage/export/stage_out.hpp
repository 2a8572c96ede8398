// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exports persistent, dirty files from the buffer to results_dir. A result gets its real name only
// when it is whole.

#include "config/job_config.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"
#include "stage/export_source.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Exports on threads that end before the call returns. Requires: no program writes to the buffer
/// (the mount is gone). A file that changes during its copy fails. An error concerns one entry, and
/// the other entries continue. After ENOSPC, EDQUOT or a cancel no new file is begun. An entry is
/// staged-out only when its data, attributes and name are durable. The buffer is not changed, so
/// the call can be repeated: it replaces partials of an earlier, killed call. If results_dir is
/// root_dir, it recognises the files that the killed call exported by their content.
Receipt stage_out(const config::JobConfig& config, ExportSource& buffer, PfsIo& pfs,
                  const Options& options, Progress& progress);

}  // namespace efs::stage
