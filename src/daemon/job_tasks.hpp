// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The tasks of a job from its begin on, and their end by a stop.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "daemon/stop_coordinator.hpp"
#include "daemon/tasks.hpp"

namespace efs::daemon {

/// For the thread of the instance, except get(). Needs no mount and no store.
class JobTasks {
 public:
  /// `stops` outlives this object. It has the requests that shorten the waits below.
  explicit JobTasks(const StopCoordinator& stops) : stops_(stops) {}

  /// Starts the threads. `book`: the file that lists the tasks that have not ended. A `successor`
  /// inherits those of its predecessor. `drains`: also for tasks of that kind.
  Status open(std::string book, bool successor, bool drains);

  /// From open() on. Thread-safe.
  Tasks& get() { return *tasks_; }

  /// Refuses new tasks and ends all in the time of the stop; its export completes the rest. Returns
  /// false if a task is left at the end of the time.
  bool end_for(const StopRequest& request);
  /// Runs an unload for a stop, within the times of a request that has them. New tasks may start
  /// meanwhile. Returns the outcome; nullopt if the PFS did not answer in time, and the unload
  /// continues.
  std::optional<control::replies::TaskOutcome> unload_for(const StopRequest& request,
                                                          Tasks::Work work);

 private:
  using Clock = std::chrono::steady_clock;

  bool has_ended(std::uint64_t task, const StopRequest& request,
                 std::optional<Clock::time_point> StopTimes::* end);

  const StopCoordinator& stops_;
  std::unique_ptr<Tasks> tasks_;
};

}  // namespace efs::daemon
