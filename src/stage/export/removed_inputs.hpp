// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Selects the inputs removed by the job that efs must remove from the PFS too (deletions:
// propagate).

#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"

namespace efs::stage {

/// Selects from ExportSource::gone() the inputs whose removal the job file propagates to the PFS:
/// persistent ones that a resource names or contains. Empty without `deletions: propagate`. For a
/// resource with a list, the list decides: a file that a load imported is not an input. If the list
/// cannot be read, none of its files is selected.
std::vector<fs::WalkItem> removed_inputs(const config::JobConfig& config,
                                         const std::vector<fs::WalkItem>& gone);

/// Moves inputs out of `inputs` and returns them, if their file still exists in the buffer
/// (`items`) but only under names that the stage-out drops. The PFS has the only copy after the
/// buffer is removed. Pure.
std::vector<fs::WalkItem> take_dropped(const config::JobConfig& config,
                                       const std::vector<fs::WalkItem>& items,
                                       std::vector<fs::WalkItem>& inputs);

}  // namespace efs::stage
