#pragma once
// A worker that its own user stops (SIGSTOP) answers nothing: programs wait in calls that cannot be killed, their job does not
// end, and its node may be drained. The supervisor, which he cannot stop where root has started it, lets the worker go on.

#include <sys/types.h>

#include <chrono>
#include <optional>

#include "base/unique_fd.hpp"

namespace efs::daemon {

class WorkerWatch {
 public:
  /// Shorter than what Slurm gives tasks that cannot be killed (UnkillableStepTimeout, a minute).
  static constexpr std::chrono::seconds longest_stop{10};

  /// `worker`: a child of this process. From here on SIGCHLD is blocked in this thread.
  explicit WorkerWatch(pid_t worker, std::chrono::milliseconds longest = longest_stop);

  /// Until `channel` can be read, or its other side is gone. A worker that stays stopped meanwhile is continued. Whoever wants it
  /// to stay so stops this process as well.
  void wait(int channel);

 private:
  using Clock = std::chrono::steady_clock;
  void look();
  void wake();
  int milliseconds_left() const;

  const pid_t worker_;
  const std::chrono::milliseconds longest_;
  UniqueFd changes_;  // signalfd(2) of SIGCHLD
  std::optional<Clock::time_point> stopped_;  // since when, as far as was seen
};

}  // namespace efs::daemon
