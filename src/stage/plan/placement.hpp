// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Assigns each input to a backend before the import begins. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "config/job_config.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

/// Sets the backend of every file of the plan: the backend that the job file names for the file, or
/// `home` for all files. If that backend has no room and the job file says `on-full: spill`, the
/// next backend with room. A file that belongs to a backend has priority there over spilled files.
/// Fills Plan::shares. Files that fit nowhere are a problem of the plan. Without effect if there is
/// one backend.
void place_entries(const config::JobConfig& config, Plan& plan, const Rooms& rooms,
                   std::optional<unsigned> home = {});

}  // namespace efs::stage
