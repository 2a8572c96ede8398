// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/start_outcome.hpp"

#include <utility>

namespace efs::daemon {

using control::replies::Failure;

void StartOutcome::fail(const Error& error) {
  Failure failure = control::replies::failure_of(error);
  MutexLock lock(mutex_);
  failure_ = std::move(failure);
}

std::optional<Failure> StartOutcome::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

std::optional<Failure> StartOutcome::tell() {
  MutexLock lock(mutex_);
  told_ = true;
  changed_.notify_all();
  return failure_;
}

void StartOutcome::note_starter_gone() {
  MutexLock lock(mutex_);
  starter_is_gone_ = true;
  changed_.notify_all();
}

bool StartOutcome::is_starter_gone() const {
  MutexLock lock(mutex_);
  return starter_is_gone_;
}

void StartOutcome::await_told(Time end) {
  MutexLock lock(mutex_);
  while (!told_ && !starter_is_gone_ && changed_.wait_until(mutex_, end)) {
  }
}

}  // namespace efs::daemon
