// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The failure of a start, and the clients that wait for it.

#include <chrono>
#include <optional>

#include "base/mutex.hpp"
#include "control/replies.hpp"

namespace efs::daemon {

/// Thread-safe. The thread of the start writes the failure; clients read it.
class StartOutcome {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The start, or the takeover, has failed.
  void fail(const Error& error);
  /// Nullopt if the start has not failed.
  std::optional<control::replies::Failure> failure() const;
  /// The same for a client, which has the reason from here on.
  std::optional<control::replies::Failure> tell();
  /// The starter disappeared before the start had ended: the instance is unwanted.
  void note_starter_gone();
  bool is_starter_gone() const;
  /// Waits until a client has the reason, or the starter is gone; until `end` at most.
  void await_told(Time end);

 private:
  mutable Mutex mutex_;  // rank 90 (leaf)
  Condition changed_;
  std::optional<control::replies::Failure> failure_ EFS_GUARDED_BY(mutex_);
  bool told_ EFS_GUARDED_BY(mutex_) = false;
  bool starter_is_gone_ EFS_GUARDED_BY(mutex_) = false;
};

}  // namespace efs::daemon
