// SPDX-License-Identifier: BSD-3-Clause
#include "base/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/thread.hpp"

namespace efs {
namespace {

class Together {
 public:
  Together(std::size_t count, std::size_t grain,
           const std::function<Status(std::size_t, std::size_t)>& work)
      : count_(count), grain_(grain), work_(work) {}

  void take_part() noexcept {
    for (std::size_t begin = next_.fetch_add(grain_); begin < count_;
         begin = next_.fetch_add(grain_)) {
      Status done;
      try {
        done = work_(begin, std::min(begin + grain_, count_));
      } catch (const std::bad_alloc&) {
        done = fail(ENOMEM);
      }
      if (done) {
        continue;
      }
      next_ = count_;
      const MutexLock lock(mutex_);
      status_ = std::move(done);
    }
  }

  Status result() {
    const MutexLock lock(mutex_);
    return std::move(status_);
  }

 private:
  const std::size_t count_;
  const std::size_t grain_;
  const std::function<Status(std::size_t, std::size_t)>& work_;
  std::atomic<std::size_t> next_{0};
  Mutex mutex_;  // rank 90 (leaf): guards status_
  Status status_ EFS_GUARDED_BY(mutex_);
};

}  // namespace

Status parallel_for(std::size_t count, std::size_t grain,
                    const std::function<Status(std::size_t begin, std::size_t end)>& work) {
  Together together(count, grain, work);
  {
    const std::size_t threads = std::min<std::size_t>(
        std::max(1U, std::thread::hardware_concurrency()), (count + grain - 1) / grain);
    std::vector<std::jthread> others;
    if (threads > 1) {
      others.reserve(threads - 1);
    }
    while (others.size() + 1 < threads) {
      auto thread = start_thread([&together] { together.take_part(); });
      if (!thread) {
        break;
      }
      others.push_back(std::move(*thread));
    }
    together.take_part();
  }
  return together.result();
}

}  // namespace efs
