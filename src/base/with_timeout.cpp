// SPDX-License-Identifier: BSD-3-Clause
#include "base/with_timeout.hpp"

#include <memory>
#include <utility>

#include "base/mutex.hpp"
#include "base/thread.hpp"

namespace efs {
namespace {

struct Ending {
  Mutex mutex;  // rank 95: no lock is acquired under it
  Condition changed;
  bool ended EFS_GUARDED_BY(mutex) = false;
};

}  // namespace

bool with_timeout(std::chrono::milliseconds time, std::function<void()> action) {
  const auto ending = std::make_shared<Ending>();
  auto thread = start_thread([ending, action = std::move(action)] {
    action();
    const MutexLock lock(ending->mutex);
    ending->ended = true;
    ending->changed.notify_all();
  });
  if (!thread) {
    return false;
  }
  thread->detach();
  const auto end = std::chrono::steady_clock::now() + time;
  const MutexLock lock(ending->mutex);
  while (!ending->ended) {
    if (!ending->changed.wait_until(ending->mutex, end)) {
      break;
    }
  }
  return ending->ended;
}

}  // namespace efs
