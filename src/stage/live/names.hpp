#pragma once
// Names as a user gives them while a job runs, and the items of the buffer that they mean.

#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"

namespace efs::stage {

/// A path on the mount, an absolute path of the PFS below root-dir, or a path relative to root-dir,
/// as the name that it has in the buffer ("" is the root). EINVAL, with the way out, for any other.
Result<std::string> buffer_name(const config::JobConfig& config, const std::string& given);

/// The items that a name means: a directory with all that is in it, or what matches it as a pattern
/// (`name` is of buffer_name(); one that is there is no pattern). ENOENT where there is none.
/// Parents before children.
Result<std::vector<fs::WalkItem>> items_of(fs::Staging& staging, const std::string& name);

}  // namespace efs::stage
