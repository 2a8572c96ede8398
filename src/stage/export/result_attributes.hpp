// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Chooses the group and the mode of each result.

#include <sys/types.h>

#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"

namespace efs::stage {

/// Chooses for all items of a walk, parents before children. Applies `results-mode` and
/// `results-group` of the job file. Otherwise sets ItemGroup::plain of the items whose group
/// no program has chosen. Returns why results-group has no effect here, for people; "" if it has,
/// or if the job file has none.
std::string choose_attributes(const config::JobConfig& config, std::vector<fs::WalkItem>& items);

/// Applies `results-mode` to this mode. The result has the bits of `results-mode`. For executable
/// files and for directories, read permission implies execute permission. A directory keeps its
/// set-group-ID and sticky bits, and its owner has all rights.
mode_t with_results_mode(mode_t mode, mode_t results_mode);

}  // namespace efs::stage
