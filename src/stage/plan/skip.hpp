// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The files that a stage-in skips, and why.

#include <string>
#include <vector>

namespace efs::stage {

/// A file that is skipped without harm: a socket, FIFO or device below a resource, a file that efs
/// makes for the job, a file that does not exist yet, or one that has vanished.
struct PlanSkip {
  std::string path;
  std::string reason;
  bool awaited = false;  // an earlier job will make it
  // it existed when it was listed, and did not when it was examined or copied
  bool vanished = false;
};

}  // namespace efs::stage
