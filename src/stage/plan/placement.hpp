#pragma once
// Which backend each input goes to, decided before anything moves. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "config/job_config.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

/// Gives every file of the plan its place: the backend that the job file names for it, or `home`
/// for all; where that has no room, and the job file says `on-full: spill`, the next one that has.
/// Files stay at home as long as any do that belong there. Fills Plan::shares; what does not fit is
/// a problem of the plan. Without effect where there is one backend.
void place_entries(const config::JobConfig& config, Plan& plan, const Rooms& rooms,
                   std::optional<unsigned> home = {});

}  // namespace efs::stage
