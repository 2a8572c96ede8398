#pragma once
// Symbolic links among the inputs: what they lead to, and how it is opened.

#include <sys/stat.h>

#include <string>
#include <vector>

#include "stage/plan/planner.hpp"
#include "stage/plan/survey.hpp"

namespace efs::stage {

/// What the end of a message says of an input that has vanished.
inline constexpr const char* vanished_hint =
    "'vanished: skip' in the job file leaves such files out, see efs-job(5)";

/// Is there nothing of this name any more, or something else on the way to it?
bool is_gone(const Error& error);

struct LinkTarget {
  std::string path;  // a whole path without symbolic links
  struct stat attributes{};
  UniqueFd directory;  // for listing; of a directory only
};

/// A regular file or a directory that the caller may read. An error says what is wrong with the
/// link. For root a link counts only
/// where root or the owner of the target made it: others' links must not lead root to files of
/// third parties.
/// `path`: of the link, below the open directory `root`.
Result<LinkTarget> follow(PfsIo& pfs, int root, const std::string& path, const Found& link);

/// Where the entry's content is: relative to root-dir, or a whole path.
inline const std::string& source_of(const PlanEntry& entry) {
  return entry.outside.empty() ? entry.from() : entry.outside;
}

std::string directory_of_source(const PlanEntry& entry);

/// Opens such a path, the one below `root`, without following a symbolic link anywhere in it.
Result<UniqueFd> open_source(PfsIo& pfs, int root, const std::string& path, int flags);

/// The symbolic links of the plan whose target is not what the mount has in its place.
std::vector<PlanNote> links_that_lead_out(const config::JobConfig& config,
                                          const std::vector<PlanEntry>& entries);

}  // namespace efs::stage
