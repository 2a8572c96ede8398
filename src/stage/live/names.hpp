// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Resolves the names that a user gives while a job runs to items of the buffer.

#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"

namespace efs::stage {

/// Converts a path to its name in the buffer ("" is the root). Accepts a path on the mount, an
/// absolute path of the PFS below root-dir, or a path relative to root-dir. EINVAL, with advice,
/// for any other path.
Result<std::string> buffer_name(const config::JobConfig& config, const std::string& given);

/// The items of a name, parents before children: the file, a directory with all its content, or the
/// matches of a pattern. `name`: from buffer_name(). An existing name is not treated as a pattern.
/// ENOENT if there is no item.
Result<std::vector<fs::WalkItem>> items_of(fs::Staging& staging, const std::string& name);

}  // namespace efs::stage
