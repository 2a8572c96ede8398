#pragma once
// A stage-in into a buffer that holds something already: what is missing, what has changed, what is
// the job's own.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fs/staging.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

struct Subtracted {
  // clean names in the buffer that the plan brings anew: to be removed first
  std::vector<std::string> outdated;
  std::uint64_t kept_files = 0;  // of the plan, that are there in the same version
  std::uint64_t kept_bytes = 0;
  std::uint64_t job_files = 0;   // of the plan, that the job has changed: its version stays
  std::uint64_t away_files = 0;  // of the plan, that stay away
  // neither can be kept: the start must not go on, and nothing is to be removed
  std::vector<PlanProblem> problems;
};

/// Directories in the buffer that the plan has as files or links: subtract() needs to know all that
/// is in them, too. Pure.
std::vector<std::string> displaced_directories(const std::vector<PlanEntry>& entries,
                                               const std::vector<fs::WalkItem>& items);

/// What of all that is gone (fs::Staging::gone()) a start does not bring back. Where an instance
/// died, or ended with results that are not back: all of it. Where it was `kept` in order: what
/// removed_inputs() has and, but in place, where the PFS has the newest version, what lives on
/// under another name and what was brought out in another version than came in, or for all that is
/// known may have been
/// (`is_out`: results-dir has something of that name). But for removed_inputs(), not where the PFS
/// has something else than came in by now. An error of `is_out` ends it: what cannot be told is not
/// guessed.
Result<std::vector<fs::WalkItem>> stays_away(
    const config::JobConfig& config, const Plan& plan, fs::Staging& staging, bool kept,
    const std::function<Result<bool>(const std::string&)>& is_out);

/// Takes out of `plan` what `items` (what the buffer says of the plan's names, at least, and of
/// what is in displaced_directories()) have: files whose origin is the PFS' version of now (by
/// whatever device number) and whose container is theirs (is_foreign()), links with the same
/// target, directories, and everything that the job has changed, or removed where that counts
/// (`removed`, see stays_away()). The sums of the plan follow. Pure.
Subtracted subtract(Plan& plan, const std::vector<fs::WalkItem>& items,
                    const std::vector<fs::WalkItem>& removed = {});

/// Of the answer of fs::Staging::revoke(): an error that names the first of those that are still
/// known by another's name.
Status all_disowned(const std::map<std::string, Error>& still);

/// What had one of the plan's names and has another now is no input under that any more, where the
/// PFS has another version of it by now: fs::Staging::revoke().
Status disown_others(const config::JobConfig& config, const Plan& plan, fs::Staging& staging);

}  // namespace efs::stage
