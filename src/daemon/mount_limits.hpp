// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The limits of a mount: the bytes and operations that programs get per second.

#include <functional>

#include "config/job_config.hpp"
#include "control/requests.hpp"
#include "control/status_reply.hpp"
#include "fuse/limits.hpp"

namespace efs::daemon {

/// Thread-safe.
class MountLimits {
 public:
  /// `config` outlives this object. `kept`: the limits in memory that outlives this process; null:
  /// there is none. A `successor` finds there what clients have changed.
  MountLimits(const config::JobConfig& config, fuse::Limits* kept, bool successor);

  /// Limits may change while programs run. Whether there are any may not: the kernel uses the same
  /// I/O path for the whole life of the mount, also under a successor.
  bool any() const;
  /// For the session; null if there are none.
  fuse::Limits* of_session();
  /// For status.
  control::replies::Limits shown() const;
  /// Carries out a request: changes all limits that it names, or none. Calls `changed` for each
  /// limit that has another rate now. Returns the answer.
  control::Json change(const control::requests::Limit& request,
                       const std::function<void(fuse::Limited)>& changed);

 private:
  const config::JobConfig& config_;
  fuse::Limits own_;  // where no memory outlives this process
  fuse::Limits& limits_;
};

}  // namespace efs::daemon
