#pragma once
// What the nodes of batch jobs have written down below the site's shared directory
// (slurm-plugin/notice.c).

#include <map>
#include <string>

#include "cli/cli.hpp"

namespace efs::cli {

/// The directory of the last run of each job, by its number.
using Runs = std::map<std::string, std::string>;
Runs last_runs(const std::string& shared);

/// The records of this job, one for each node. A node whose results were not back, and of which a
/// receipt that was written since says that they are, counts as "done". Empty: no node has written
/// anything.
Json records_of(const Runs& runs, const std::string& job);

/// The jobs that are tasks of this array, by their index, as far as their nodes have written it
/// down: those that have ended.
std::map<std::string, std::string> tasks_of_array(const std::string& shared,
                                                  const std::string& array);

}  // namespace efs::cli
