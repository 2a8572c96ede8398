// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// From the requests of the control protocol to those of the instance: what goes together, and how
// much is too much. src/control/README.md lists the fields with their defaults.

#include <chrono>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/requests.hpp"
#include "fs/staging.hpp"
#include "stage/live/load.hpp"
#include "stage/live/unload.hpp"

namespace efs::daemon {

/// Fails with EINVAL if there are no paths or too many.
Status check_paths(const std::vector<std::string>& paths);

/// Build the requests for `names`. Fail with EINVAL if options contradict each other.
Result<stage::LoadRequest> load_of(const control::requests::Load& request,
                                   std::vector<std::string> names);
Result<stage::UnloadRequest> unload_of(const control::requests::Unload& request,
                                       std::vector<std::string> names);

/// Fails with EINVAL if there is no such class.
Result<fs::Keep> class_of(const std::string& name);

/// Seconds, within what the clock can represent; likewise below.
double asked_ago_of(const control::requests::Stop& request);
std::chrono::milliseconds timeout_of(std::optional<std::uint64_t> timeout_ms);

}  // namespace efs::daemon
