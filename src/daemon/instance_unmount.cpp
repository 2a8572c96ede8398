// How the mount of an instance ends: who is in it, here or in another namespace, is waited for or
// cut off.
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log.hpp"
#include "daemon/instance.hpp"

namespace efs::daemon {

constexpr auto retry_interval = std::chrono::seconds(1);
constexpr auto pause_between_tries = std::chrono::milliseconds(100);
// who only looks (df, a monitor) has it no longer
constexpr auto time_to_look = std::chrono::milliseconds(500);
constexpr auto longest_patience = std::chrono::seconds(10);

// Nobody waits for an answer where root has ended the connection: who is in the mount may take his
// time, and what the job file allows a stop begins when he has left.
Status Instance::unmount_for(StopRequest& request) {
  Status unmounted = unmount(request);
  if (unmounted || request.ticket != 0) {
    return unmounted;
  }
  request.until.reset();
  request.gone_by.reset();
  drop_last_resort();
  {
    MutexLock lock(mutex_);
    waits_for_ =
        "its connection was ended, and programs are in it still: waiting until they have left";
    log::warn("event=mount_dead mount={} note=\"{}\"", options_.config.mount_dir, waits_for_);
  }
  while (!unmounted && !is_asked_within(retry_interval)) {
    unmounted = unmount(request);
  }
  {
    MutexLock lock(mutex_);
    waits_for_ = nullptr;
  }
  if (unmounted) {
    begin_deadline(request);
  }
  return unmounted;
}

// For a stop.
bool Instance::is_asked_within(std::chrono::steady_clock::duration time) {
  const auto end = std::chrono::steady_clock::now() + time;
  MutexLock lock(mutex_);
  while (!stop_request_ && std::chrono::steady_clock::now() < end) {
    changed_.wait_until(mutex_, end);
  }
  return stop_request_.has_value();
}

void Instance::drop_last_resort() {
  std::unique_ptr<TimerThread> before;
  MutexLock lock(mutex_);
  if (!stop_request_) {
    before = std::move(last_resort_);
  }
}

// A signal, which nobody answers, would be lost by who only looks. A stop that has to end in time
// has time for programs that are about to end.
Status Instance::unmount(const StopRequest& request) {
  const auto begin = std::chrono::steady_clock::now();
  const auto patient_until = [&] {
    const StopRequest last = last_request(request);
    const auto looked_at = begin + time_to_look;
    return last.until ? std::max(looked_at, std::min(begin + longest_patience,
                                                     begin + (*last.until - begin) / 4))
                      : looked_at;
  };
  Status unmounted = supervisor_.unmount(request.is_unusual());
  while (!unmounted && unmounted.error().code == EBUSY &&
         std::chrono::steady_clock::now() < patient_until()) {
    std::this_thread::sleep_for(pause_between_tries);
    unmounted = supervisor_.unmount(request.is_unusual());
  }
  if (!unmounted) {
    return fail(unmounted.error().code,
                options_.config.mount_dir + " is in use: " + describe(unmounted.error()));
  }
  if (session_thread_.joinable()) {
    await_session_end();
    session_thread_.join();
  }
  housekeeper_.reset();
  return {};
}

// The connection ends with the last place of the mount, and other namespaces (containers, jobs that
// were started while it was there) may have copies of ours. Who uses one goes on until he leaves
// it; or, where the stop cannot wait, is cut off.
void Instance::await_session_end() {
  const auto begin = Clock::now(), patient_until = begin + longest_patience;
  // Of the last request: a later one may be in more of a hurry. With a deadline most of the time is
  // the stage-out's.
  const auto cut_off_at = [&]() EFS_REQUIRES(mutex_) {
    if (!stop_request_ || (!stop_request_->cut_off && !stop_request_->until)) {
      return Clock::time_point::max();
    }
    return stop_request_->until
               ? std::min(patient_until, begin + (*stop_request_->until - begin) / 4)
               : patient_until;
  };
  for (bool cut = false;;) {
    {
      MutexLock lock(mutex_);
      if (session_ended_) {
        break;
      }
      const auto now = Clock::now();
      if (now >= patient_until && waits_for_ == nullptr) {
        waits_for_ =
            "another mount namespace (a container?) still has the mount: waiting until it is left";
        log::warn(
            "event=mount_elsewhere mount={} note=\"unmounted here, but another mount namespace "
            "still has it\"",
            options_.config.mount_dir);
      }
      if (cut || now < cut_off_at()) {
        changed_.wait_until(mutex_, now + progress_interval);
        continue;
      }
    }
    cut = true;
    log::warn("event=cut_off mount={}", options_.config.mount_dir);
    session_->write_back();
    session_->end();
  }
  MutexLock lock(mutex_);
  waits_for_ = nullptr;
}

}  // namespace efs::daemon
