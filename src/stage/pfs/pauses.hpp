// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The clock of pauses; tests replace it.

#include <atomic>

#include "base/clock.hpp"

namespace efs::stage {

/// Thread-safe.
class Pauses {
 public:
  virtual ~Pauses() = default;
  /// A monotonic clock with an arbitrary zero.
  virtual Nanoseconds now() = 0;
  virtual void sleep(Nanoseconds duration) = 0;
};

Pauses& real_pauses();

/// Sleeps until `end`, or at most a tenth of a second after `cancel` is set.
void pause_until(Nanoseconds end, const std::atomic<bool>& cancel, Pauses& pauses);

/// A random duration between three and five quarters of `pause`, so that threads and nodes that
/// failed together do not retry together.
Nanoseconds jittered(Nanoseconds pause);

}  // namespace efs::stage
