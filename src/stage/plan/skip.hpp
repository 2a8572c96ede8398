#pragma once
// What a stage-in leaves out, and why.

#include <string>
#include <vector>

namespace efs::stage {

/// Left out without harm: sockets, FIFOs and devices below a resource, what efs itself makes for
/// the job, what is not there yet, and
/// what has vanished.
struct PlanSkip {
  std::string path;
  std::string reason;
  bool awaited = false;   // an earlier job makes it
  bool vanished = false;  // it was found, and was gone when it was looked at or copied
};

}  // namespace efs::stage
