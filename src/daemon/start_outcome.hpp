// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The failure of a start, and the clients that wait for it.

#include <chrono>

#include "base/mutex.hpp"
#include "control/protocol.hpp"

namespace efs::daemon {

/// Thread-safe. The thread of the start writes the failure; clients read it.
class StartOutcome {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The start, or the takeover, has failed. `line`: the answer to the clients.
  void fail(control::Json line);
  /// Null if the start has not failed.
  control::Json failure() const;
  /// The same for a client, which has the reason from here on.
  control::Json tell();
  /// The starter disappeared before the start had ended: the instance is unwanted.
  void note_starter_gone();
  bool is_starter_gone() const;
  /// Waits until a client has the reason, or the starter is gone; until `end` at most.
  void await_told(Time end);

 private:
  mutable Mutex mutex_;  // rank 90 (leaf)
  Condition changed_;
  control::Json failure_ EFS_GUARDED_BY(mutex_);
  bool told_ EFS_GUARDED_BY(mutex_) = false;
  bool starter_is_gone_ EFS_GUARDED_BY(mutex_) = false;
};

}  // namespace efs::daemon
