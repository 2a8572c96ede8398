// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_watchers.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/timer_thread.hpp"

namespace efs::daemon {
namespace {

constexpr auto time_to_close = std::chrono::seconds(5);

}  // namespace

Status JobWatchers::open() {
  auto watchers = Watchers::open(config_, directory_, snapshot_);
  if (!watchers) {
    return std::unexpected(watchers.error());
  }
  MutexLock lock(mutex_);
  watchers_ = std::move(*watchers);
  return {};
}

void JobWatchers::open_later() {
  auto watchers = Watchers::open_later(config_, directory_, snapshot_);
  MutexLock lock(mutex_);
  watchers_ = std::move(watchers);
}

std::vector<fuse::EventSink*> JobWatchers::sinks() const {
  MutexLock lock(mutex_);
  return watchers_ ? watchers_->sinks() : std::vector<fuse::EventSink*>();
}

void JobWatchers::poke() {
  MutexLock lock(mutex_);
  if (watchers_) {
    watchers_->poke();
  }
}

void JobWatchers::add_status(control::replies::Status& status) {
  MutexLock lock(mutex_);
  if (watchers_) {
    watchers_->add_status(status);
  }
}

// The last document has the state of the instance, so the destructor runs without the lock.
void JobWatchers::close(int code) {
  const auto in_any_case = TimerThread::start(std::chrono::steady_clock::now() + time_to_close,
                                              [code] { ::_exit(code); });
  std::unique_ptr<Watchers> last;
  {
    MutexLock lock(mutex_);
    last.swap(watchers_);
  }
}

}  // namespace efs::daemon
