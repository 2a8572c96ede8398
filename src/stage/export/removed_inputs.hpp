#pragma once
// Inputs that the job took away: which of them are to be taken away at the PFS too (deletions:
// propagate).

#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"

namespace efs::stage {

/// Of what is gone (Buffer::gone()) the inputs whose removal the job file declares to be one of the
/// PFS's: persistent, and named or held by a resource. None without `deletions: propagate`. What
/// only a list can name is looked up there: a file that a load brought is no input, and where the
/// list cannot be read nothing of it is.
std::vector<fs::WalkItem> removed_inputs(const config::JobConfig& config,
                                         const std::vector<fs::WalkItem>& gone);

/// Takes from `inputs`, and gives, those whose file lives on in the buffer (`items`) under names
/// that are dropped, and no others: when the buffer goes only the PFS has them. Pure.
std::vector<fs::WalkItem> take_dropped(const config::JobConfig& config,
                                       const std::vector<fs::WalkItem>& items,
                                       std::vector<fs::WalkItem>& inputs);

}  // namespace efs::stage
