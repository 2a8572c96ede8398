#pragma once
// Inputs of a job on several nodes: every node gets all of a resource, or each its part of the
// files.

#include "config/job_config.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

/// Takes out of the plan the files of partitioned resources that go to other nodes; directories and
/// symbolic links stay. Files are dealt out by size, the largest first, each to the node with the
/// fewest bytes so far: the same on every node, as long as all see the same PFS. Tells where all of
/// them go, by path. Call it before the plan is summed up.
std::vector<Dealt> deal_out(const config::JobConfig& config, std::vector<PlanEntry>& entries);

/// A line for each: "NODE PATH", control characters and backslashes of the path as \NNN (octal).
std::string lines_of(const std::vector<Dealt>& parts);

}  // namespace efs::stage
