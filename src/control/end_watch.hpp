// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Waits for the end of an instance.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"

namespace efs::control {

/// Watches an instance. Create it before the stop request. Not thread-safe.
class EndWatch {
 public:
  /// `supervisor`: the pid that the instance reported; 0 if it reported none.
  EndWatch(const std::string& directory, pid_t supervisor);

  /// Returns when the instance's lock is free or its supervisor has ended. Does not wait for a
  /// later instance that uses the same name and directory. Returns false after `longest`.
  bool wait(std::optional<std::chrono::milliseconds> longest = {}) const;

 private:
  UniqueFd directory_;   // the supervisor holds its lock
  UniqueFd supervisor_;  // pidfd; empty if not available
};

}  // namespace efs::control
