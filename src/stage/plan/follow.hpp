// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Resolves symbolic links among the inputs and opens their targets.

#include <sys/stat.h>

#include <string>
#include <vector>

#include "stage/plan/planner.hpp"
#include "stage/plan/survey.hpp"

namespace efs::stage {

/// The advice at the end of a message about an input that has vanished.
inline constexpr const char* vanished_hint =
    "'vanished: skip' in the job file leaves such files out, see efs-job(5)";

/// True if the error means that the name, or a directory above it, no longer exists.
bool is_gone(const Error& error);

struct LinkTarget {
  std::string path;  // an absolute path without symbolic links
  struct stat attributes{};
  PfsHandle directory;  // for listing; only for a directory
};

/// Returns the target of a link: a regular file or a directory that the caller may read. An error
/// describes the problem with the link. If the caller is root, the owner of the link must be root
/// or the owner of the target, so that a user's link cannot lead root to files of third parties.
/// `path`: the link, below the open directory `root`.
Result<LinkTarget> follow(PfsIo& pfs, PfsRef root, const std::string& path, const Found& link);

/// The path of the entry's content: relative to root-dir, or absolute.
inline const std::string& source_of(const PlanEntry& entry) {
  return entry.outside.empty() ? entry.from() : entry.outside;
}

std::string directory_of_source(const PlanEntry& entry);

/// Opens such a path; a relative one is below `root`. Follows no symbolic link in any component.
Result<PfsHandle> open_source(PfsIo& pfs, PfsRef root, const std::string& path, int flags);

/// The symbolic links of the plan whose target on the mount differs from the target on the PFS.
std::vector<PlanNote> links_that_lead_out(const config::JobConfig& config,
                                          const std::vector<PlanEntry>& entries);

}  // namespace efs::stage
