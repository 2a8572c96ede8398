// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checkpoint/worker.hpp"

#include <signal.h>

#include <utility>

namespace efs::objects {

namespace {

/// Blocks all signals of this thread, and of those that it creates.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }

  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

std::thread quiet_thread(std::function<void()> body) {
  const BlockedSignals blocked;
  return std::thread(std::move(body));
}

Worker::Worker() : thread_(quiet_thread([this] { run(); })) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::uint64_t Worker::post(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  work_.push_back(std::move(work));
  const std::uint64_t number = ++posted_;
  lock.unlock();
  changed_.notify_all();
  return number;
}

void Worker::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number; });
}

void Worker::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ == posted_; });
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !work_.empty() || ending_; });
    if (work_.empty()) {
      return;
    }
    auto work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace efs::objects
