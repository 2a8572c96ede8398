// SPDX-License-Identifier: BSD-3-Clause
// The end of a mount: waits for programs in this and other mount namespaces, or cuts them off.
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log.hpp"
#include "daemon/mount_service.hpp"

namespace efs::daemon {

constexpr auto look_interval = std::chrono::milliseconds(250);  // for an earlier deadline
constexpr auto retry_interval = std::chrono::seconds(1);
constexpr auto pause_between_tries = std::chrono::milliseconds(100);
// a program that only looks (df, a monitor) has left the mount by then
constexpr auto time_to_look = std::chrono::milliseconds(500);
constexpr auto longest_patience = std::chrono::seconds(10);

// If root has ended the connection, no client waits for an answer. Programs may stay in the mount
// as long as they need. The time that the job file allows a stop begins after they have left.
Status MountService::unmount_for(StopRequest& request) {
  Status unmounted = unmount(request);
  if (unmounted || request.ticket != 0) {
    return unmounted;
  }
  request.times = {};
  stops_.drop_last_resort();
  {
    MutexLock lock(mutex_);
    waits_for_ = "its connection was ended: waiting for the programs in it to leave";
    log::warn("event=mount_dead mount={} note=\"{}\"", config_.mount_dir, waits_for_);
  }
  while (!unmounted && !stops_.is_asked_by(Clock::now() + retry_interval)) {
    unmounted = unmount(request);
  }
  {
    MutexLock lock(mutex_);
    waits_for_ = nullptr;
  }
  if (unmounted) {
    stops_.begin_deadline(request);
  }
  return unmounted;
}

// Programs may have left writes that wait for a limit: stores to mapped files, which the kernel
// sends later. Before Linux 6.16 an unmount does not wait for them.
void MountService::lift_limits() {
  session_->lift_limits(true);
  const auto end = Clock::now() + longest_patience;
  while (session_->has_delayed() && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Retries a busy unmount for a short time: a signal has no client to report EBUSY to, so a program
// that only looks at the mount must not make it fail. A stop with a deadline waits longer for
// programs that are about to end.
Status MountService::unmount(const StopRequest& request) {
  lift_limits();
  const auto begin = std::chrono::steady_clock::now();
  const auto patient_until = [&] {
    const StopRequest last = stops_.last_of(request);
    const auto looked_at = begin + time_to_look;
    return last.times.until ? std::max(looked_at, last.times.quarter(begin, longest_patience))
                            : looked_at;
  };
  Status unmounted = privileges_.unmount(request.is_unusual());
  while (!unmounted && unmounted.error().code == EBUSY &&
         std::chrono::steady_clock::now() < patient_until()) {
    std::this_thread::sleep_for(pause_between_tries);
    unmounted = privileges_.unmount(request.is_unusual());
  }
  if (!unmounted) {
    session_->lift_limits(false);
    return fail(unmounted.error().code,
                config_.mount_dir + " is in use: " + describe(unmounted.error()));
  }
  if (thread_.joinable()) {
    await_session_end();
    thread_.join();
  }
  return {};
}

// The connection ends with the last copy of the mount. Other namespaces (containers, jobs that
// started while it existed) may have copies. A program may use such a copy until it leaves it. A
// stop that cannot wait cuts the program off.
void MountService::await_session_end() {
  const auto begin = Clock::now(), patient_until = begin + longest_patience;
  // Use the latest request, which may have an earlier deadline. Most of the time until a deadline
  // belongs to the export.
  const auto cut_off_at = [&] {
    const auto last = stops_.latest();
    if (!last || (!last->cut_off && !last->times.until)) {
      return Clock::time_point::max();
    }
    return last->times.until ? last->times.quarter(begin, longest_patience) : patient_until;
  };
  for (bool cut = false; !stops_.is_unmounted();) {
    const auto now = Clock::now();
    if (now >= patient_until) {
      say_that_mount_is_elsewhere();
    }
    if (cut || now < cut_off_at()) {
      (void)stops_.is_unmounted_by(now + look_interval);
      continue;
    }
    cut = true;
    log::warn("event=cut_off mount={}", config_.mount_dir);
    session_->write_back();
    session_->end();
  }
  set_waits_for(nullptr);
}

void MountService::say_that_mount_is_elsewhere() {
  MutexLock lock(mutex_);
  if (waits_for_ != nullptr) {
    return;
  }
  waits_for_ =
      "another mount namespace (a container?) still has the mount: waiting until it is left";
  log::warn(
      "event=mount_elsewhere mount={} note=\"unmounted here, but another mount namespace still has "
      "it\"",
      config_.mount_dir);
}

}  // namespace efs::daemon
