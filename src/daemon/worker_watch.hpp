#pragma once
// A worker that its own user stops (SIGSTOP) answers nothing: programs wait in calls that cannot be
// killed, their job does not end, and its node may be drained. The supervisor, which he cannot stop
// where root has started it, lets the worker go on. One that is killed may take long to be gone
// (death_pipe.hpp), and programs wait for a successor meanwhile.

#include <sys/types.h>

#include <chrono>
#include <optional>

#include "base/unique_fd.hpp"

namespace efs::daemon {

class WorkerWatch {
 public:
  /// Shorter than what Slurm gives tasks that cannot be killed (UnkillableStepTimeout, a minute).
  static constexpr std::chrono::seconds longest_stop{10};

  /// Longer than the kernel takes to end a process that waits for a disk, or to give back all its
  /// memory.
  static constexpr std::chrono::seconds longest_death{2};

  /// `worker`: a child of this process; `life`: ends with it, however long it takes to be gone
  /// (borrowed; -1: there is no such line). From here on SIGCHLD is blocked in this thread.
  explicit WorkerWatch(pid_t worker, int life = -1,
                       std::chrono::milliseconds longest = longest_stop);

  /// Until `channel` can be read, or its other side is gone: true; false where the worker was
  /// killed, and all that it had to say is read. A worker that stays stopped meanwhile is
  /// continued. Whoever wants it to stay so stops this process as well.
  bool wait(int channel);

  /// Waits for the end of the worker: how it ended (waitpid(2)). None where it was killed `longest`
  /// ago and is not gone yet: it runs no instruction of its own any more, but its descriptors are
  /// open.
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
  std::optional<Clock::time_point> stopped_;  // since when, as far as was seen
};

}  // namespace efs::daemon
