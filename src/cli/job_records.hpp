// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads the records that the nodes of batch jobs wrote below the site's shared directory
// (slurm-plugin/notice.c).

#include <map>
#include <string>

#include "cli/cli.hpp"

namespace efs::cli {

/// Maps a job number to the directory of the last run of the job.
using Runs = std::map<std::string, std::string>;
Runs last_runs(const std::string& shared);

/// Returns the records of this job, one for each node. A node that recorded missing results counts
/// as "done" if a later receipt lists all results as exported. Empty: no node wrote a record.
Json records_of(const Runs& runs, const std::string& job);

/// Maps the index of a task of this array to its job number. Contains only tasks that ended and
/// whose nodes wrote a record.
std::map<std::string, std::string> tasks_of_array(const std::string& shared,
                                                  const std::string& array);

}  // namespace efs::cli
