#pragma once
// When an instance is at rest.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"

namespace efs::control {

/// Watches an instance from before it is asked to stop. Not thread-safe.
class EndWatch {
 public:
  /// `supervisor`: its pid, as the instance says (0: it does not).
  EndWatch(const std::string& directory, pid_t supervisor);

  /// Returns when nobody holds the instance any more, or its supervisor is gone. The next of its
  /// name, which may have its directory by then, is not waited for. False where that takes longer
  /// than `longest`.
  bool wait(std::optional<std::chrono::milliseconds> longest = {}) const;

 private:
  UniqueFd directory_;   // the supervisor holds it locked
  UniqueFd supervisor_;  // pidfd; none where it cannot be had
};

}  // namespace efs::control
