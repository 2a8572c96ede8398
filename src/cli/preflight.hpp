#pragma once
// The directories that a job stands on, on this node: what a start would find wrong with them
// before anything moves.

#include <vector>

#include "config/job_config.hpp"
#include "stage/plan/planner.hpp"

namespace efs::cli {

/// Of the mount point and the backends' directories; with this process's rights. Makes nothing.
std::vector<stage::PlanProblem> preflight_problems(const config::JobConfig& config);

}  // namespace efs::cli
