// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/upkeep.hpp"

#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "fuse/connection.hpp"

namespace efs::fuse {
namespace {

constexpr auto moment = std::chrono::milliseconds(2);

}  // namespace

Upkeep::~Upkeep() {
  std::jthread ended;  // joined without the lock
  {
    MutexLock lock(mutex_);
    ended_ = true;
    ended = std::move(thread_);
  }
  wake_.notify_one();
}

bool Upkeep::due() const {
  return connection_.backing.due() || connection_.filesystem.owes_space() ||
         connection_.filesystem.put_off() > 0;
}

void Upkeep::run() {
  connection_.backing.run();
  if (connection_.filesystem.owes_space()) {
    connection_.filesystem.free_removed();
  }
  if (connection_.filesystem.put_off() > 0) {
    wake();
  }
}

void Upkeep::wake() noexcept {
  if (!has_thread(false)) {
    return work();
  }
  wake_.notify_one();
}

void Upkeep::wake_soon() noexcept {
  if (!has_thread(true)) {
    return work();
  }
  wake_.notify_one();
}

// Also tells the thread that there is work.
bool Upkeep::has_thread(bool soon) {
  MutexLock lock(mutex_);
  (soon ? soon_ : wanted_) = true;
  if (!thread_.joinable() && !refused_ && !ended_) {
    auto started = start_thread([this] { serve(); });
    refused_ = !started;
    if (started) {
      thread_ = std::move(*started);
    } else {
      log::warn("event=no_thread_for_upkeep note=\"threads that serve requests do its work\"");
    }
  }
  return thread_.joinable();
}

void Upkeep::serve() noexcept {
  mutex_.lock();
  while (!ended_) {
    if (!wanted_ && soon_) {
      const auto end = std::chrono::steady_clock::now() + moment;
      while (!wanted_ && !ended_ && wake_.wait_until(mutex_, end)) {
      }
    } else if (!wanted_) {
      wake_.wait(mutex_);
      continue;
    }
    wanted_ = soon_ = false;
    mutex_.unlock();
    work();
    mutex_.lock();
  }
  mutex_.unlock();
}

void Upkeep::work() noexcept {
  fs::Filesystem& filesystem = connection_.filesystem;
  try {
    filesystem.remove_put_off();
  } catch (const std::exception& problem) {  // the next start removes the container
    log::warn("event=removal_failed reason=\"{}\"", problem.what());
  }
  filesystem.fill_pool([this](std::span<const fs::ContainerPool::Ready> containers) {
    connection_.backing.prepare(containers);
  });
}

}  // namespace efs::fuse
