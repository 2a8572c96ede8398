// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The backoff of retries for names that other nodes or jobs have claimed.

#include <atomic>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "stage/pfs/pauses.hpp"

namespace efs::stage {

/// One object serves all waits of one transfer. Not thread-safe. Both arguments are borrowed.
class Patience {
 public:
  static constexpr Nanoseconds longest = 10'000'000'000;

  explicit Patience(const std::atomic<bool>& cancel, Pauses& pauses)
      : cancel_(cancel), pauses_(pauses) {}

  /// Sleeps, longer each time, up to half a second. `held`: the awaited names and their claimants.
  /// Returns false at once if `held` has been the same for `longest` or `cancel` is set; the caller
  /// then gives up.
  bool wait(std::vector<std::string> held);

 private:
  const std::atomic<bool>& cancel_;
  Pauses& pauses_;
  std::vector<std::string> held_;
  Nanoseconds pause_ = 0;
  Nanoseconds end_ = 0;
};

}  // namespace efs::stage
