// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Plans a stage-in into a buffer that already has files: missing files, changed files, and files of
// the job.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fs/staging.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

struct Subtracted {
  // clean names in the buffer that the plan imports again; remove them first
  std::vector<std::string> outdated;
  std::uint64_t kept_files = 0;  // of the plan: already in the buffer in the same version
  std::uint64_t kept_bytes = 0;
  std::uint64_t job_files = 0;   // of the plan: changed by the job, whose version stays
  std::uint64_t away_files = 0;  // of the plan: removed by the job, not imported again
  // conflicts between the job's and the PFS's files: the start must fail, and nothing may be
  // removed
  std::vector<PlanProblem> problems;
};

/// Directories in the buffer whose names are files or links in the plan. subtract() also needs all
/// items in them. Pure.
std::vector<std::string> displaced_directories(const std::vector<PlanEntry>& entries,
                                               const std::vector<fs::WalkItem>& items);

/// The removed inputs (fs::Staging::gone()) that a start must not import again. A file is never in
/// the list if the PFS now has another version than the imported one, except by removed_inputs().
/// If the instance died, or ended with results not exported: all of them. If the instance was
/// `kept` in order: the result of removed_inputs(). Unless results are in place, where the PFS has
/// the newest version, these are added: files that still exist under another name, and files that
/// were exported in another version than the imported one, or may have been (`is_out`: results-dir
/// has the name). In place, results that were dropped from the buffer are added if the PFS has the
/// exported version, unless the instance was kept. An error of `is_out` ends the call.
Result<std::vector<fs::WalkItem>> stays_away(
    const config::JobConfig& config, const Plan& plan, fs::Staging& staging, bool kept,
    const std::function<Result<bool>(const std::string&)>& is_out);

/// Removes from `plan` the entries that `items` already have, and updates its sums. `items`: at
/// least the buffer's items with names of the plan, and all items in displaced_directories().
/// Removed are: files whose origin is the present version on the PFS (under any device number) and
/// whose container is intact (is_foreign()); links with the same target; directories; and every
/// entry that the job has changed, or removed if `removed` lists it (see stays_away()). Pure.
Subtracted subtract(Plan& plan, const std::vector<fs::WalkItem>& items,
                    const std::vector<fs::WalkItem>& removed = {});

/// Converts the result of fs::Staging::revoke() to an error that names the first name that could
/// not be revoked.
Status all_disowned(const std::map<std::string, Error>& still);

/// Revokes (fs::Staging::revoke()) the records of files that were imported under a name of the plan
/// and now have another name, if the PFS has another version of that name by now.
Status disown_others(const config::JobConfig& config, const Plan& plan, fs::Staging& staging);

}  // namespace efs::stage
