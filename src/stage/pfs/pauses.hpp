#pragma once
// Where the time of pauses goes by.

#include <atomic>

#include "base/clock.hpp"

namespace efs::stage {

/// Thread-safe.
class Pauses {
 public:
  virtual ~Pauses() = default;
  /// Of a clock that never goes back; its zero means nothing.
  virtual Nanoseconds now() = 0;
  virtual void sleep(Nanoseconds duration) = 0;
};

Pauses& real_pauses();

/// Until `end`, or a tenth of a second after `cancel` is set at the latest.
void pause_until(Nanoseconds end, const std::atomic<bool>& cancel, Pauses& pauses);

/// Between three and five quarters of it, so that the threads (and nodes) that failed together do
/// not return together.
Nanoseconds jittered(Nanoseconds pause);

}  // namespace efs::stage
