// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Distributes the inputs of a job on several nodes. Every node gets all files of a resource, or
// each node gets its part of them.

#include "config/job_config.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

/// Removes from the plan the files of partitioned resources that belong to other nodes; directories
/// and symbolic links stay. Files are assigned in order of size, the largest first, each to the
/// node with the fewest bytes so far. All nodes compute the same assignment if they see the same
/// PFS. Returns the assignment of all these files, by path. Call it before sum_up().
std::vector<Dealt> deal_out(const config::JobConfig& config, std::vector<PlanEntry>& entries);

/// One line for each: "NODE PATH", with control characters and backslashes of the path as \NNN
/// (octal).
std::string lines_of(const std::vector<Dealt>& parts);

}  // namespace efs::stage
