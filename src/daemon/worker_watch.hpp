// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Observes a worker. The user can stop its own worker with SIGSTOP. Programs then wait in calls
// that cannot be killed, the job does not end, and the node may be drained. The supervisor
// continues such a worker; the user cannot stop a supervisor that root started. A killed worker may
// take long to disappear (death_pipe.hpp) while programs wait for a successor.

#include <sys/types.h>

#include <chrono>
#include <optional>

#include "base/unique_fd.hpp"

namespace efs::daemon {

class WorkerWatch {
 public:
  /// Shorter than the time that Slurm gives tasks that cannot be killed (UnkillableStepTimeout, a
  /// minute).
  static constexpr std::chrono::seconds longest_stop{10};

  /// Longer than the kernel needs to end a process that waits for a disk, or to free all its
  /// memory.
  static constexpr std::chrono::seconds longest_death{2};

  /// `worker`: a child of this process. `life`: the end of its death pipe; borrowed; -1: none. The
  /// constructor blocks SIGCHLD in this thread permanently.
  explicit WorkerWatch(pid_t worker, int life = -1,
                       std::chrono::milliseconds longest = longest_stop);

  /// Waits. Returns true when `channel` is readable or its peer is gone. Returns false when the
  /// worker was killed and all its messages are read. Continues a worker that stays stopped
  /// meanwhile. To keep a worker stopped, stop this process as well.
  bool wait(int channel);

  /// Waits for the end of the worker and returns its status (waitpid(2)). Returns nullopt if the
  /// worker was killed `longest` ago and is not yet reaped: it executes no more instructions, but
  /// its descriptors are open.
  std::optional<int> reap(std::chrono::milliseconds longest = longest_death);

 private:
  using Clock = std::chrono::steady_clock;
  void look();
  void wake();
  int milliseconds_left() const;

  bool reap_or_wait(std::optional<int>& status, std::optional<Clock::time_point>& killed,
                    std::chrono::milliseconds longest);

  const pid_t worker_;
  const int life_;
  const std::chrono::milliseconds longest_;
  UniqueFd changes_;                          // signalfd(2) of SIGCHLD
  std::optional<Clock::time_point> stopped_;  // the first time at which the worker was seen stopped
};

}  // namespace efs::daemon
