#pragma once
// Which value counts where several places give one. The only code that knows the order:
//   command line > environment > job file > site file > built-in,
// save that what the site fixes or limits cannot be changed by any of them.

#include <string>
#include <vector>

#include "config/document.hpp"
#include "config/load.hpp"
#include "config/site.hpp"

namespace efs::config {

/// The variable that sets a key of global-settings: "EFS_MOUNT_DIR" for "mount-dir".
std::string variable_of(std::string_view key);

/// global-settings with every value taken from the place that wins, expanded (expand.hpp).
Section resolve_settings(Section job, const Overrides& overrides, const Surroundings& surroundings,
                         ProblemList& problems);

/// The job's backends, or the site's where it has none; expanded.
std::vector<Section> resolve_backends(std::vector<Section> job, const Surroundings& surroundings,
                                      ProblemList& problems);

/// Reports what is above a limit of the site, and lowers built-in values that are.
void apply_limits(const Site& site, const Document& document, JobConfig& config,
                  ProblemList& problems);

/// Every setting and every key of a backend with its value and where that comes from.
std::vector<EffectiveValue> effective_values(const Document& document, const JobConfig& config,
                                             const Surroundings& surroundings);

}  // namespace efs::config
