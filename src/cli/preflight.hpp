// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks the directories of a job on this node. Finds the problems with which a start would fail
// before it moves any data.

#include <vector>

#include "config/job_config.hpp"
#include "stage/plan/planner.hpp"

namespace efs::cli {

/// Checks the mount point and the directories of the backends with the rights of this process.
/// Creates nothing.
std::vector<stage::PlanProblem> preflight_problems(const config::JobConfig& config);

}  // namespace efs::cli
