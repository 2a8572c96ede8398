#pragma once
// Which group and which mode a result is to have.

#include <sys/types.h>

#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"

namespace efs::stage {

/// Chooses for all items of a walk, parents before children: `results-mode` and `results-group` of
/// the job file; else WalkItem::plain_group of those whose group no program has chosen. Returns why
/// results-group means nothing here, for people; "": it does, or there is none.
std::string choose_attributes(const config::JobConfig& config, std::vector<fs::WalkItem>& items);

/// The mode that `results-mode` makes of this one: its bits; and the right to execute with that to
/// read, of files that were executable and of directories. A directory keeps its set-group-ID and
/// sticky bits, and its owner has all rights.
mode_t with_results_mode(mode_t mode, mode_t results_mode);

}  // namespace efs::stage
