// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Selects the effective value if several sources give one. Only this code knows the order:
//   command line > environment > job file > site file > built-in,
// except that none of them can change a value that the site fixes or limits.

#include <string>
#include <vector>

#include "config/document.hpp"
#include "config/load.hpp"
#include "config/site.hpp"

namespace efs::config {

/// Returns the variable that sets a key of global-settings: "EFS_MOUNT_DIR" for "mount-dir".
std::string variable_of(std::string_view key);

/// Returns global-settings with every value from the winning source, expanded (expand.hpp).
Section resolve_settings(Section job, const Overrides& overrides, const Surroundings& surroundings,
                         ProblemList& problems);

/// Returns the job's backends, or the site's if the job names none; expanded.
std::vector<Section> resolve_backends(std::vector<Section> job, const Surroundings& surroundings,
                                      ProblemList& problems);

/// Reports values above a limit of the site, and lowers built-in values to the limit.
void apply_limits(const Site& site, const Document& document, JobConfig& config,
                  ProblemList& problems);

/// Returns every setting and every key of a backend, with its value and its source.
std::vector<EffectiveValue> effective_values(const Document& document, const JobConfig& config,
                                             const Surroundings& surroundings);

}  // namespace efs::config
