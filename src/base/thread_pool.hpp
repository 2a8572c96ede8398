#pragma once
// A fixed set of threads for staging. Not used on the request path.

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.hpp"

namespace efs {

/// Runs tasks in submission order on `threads` threads. Tasks must not throw. The destructor runs what is queued.
class ThreadPool {
 public:
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void submit(std::function<void()> task);
  /// Returns when no task is queued or running.
  void drain();

 private:
  void work();
  /// Waits for a task and counts it as running; none when the pool ends.
  std::optional<std::function<void()>> next();
  void done();

  Mutex mutex_;  // rank 90 (leaf): nothing is taken under it
  Condition work_ready_, idle_;
  std::deque<std::function<void()>> queue_ EFS_GUARDED_BY(mutex_);
  std::size_t running_ EFS_GUARDED_BY(mutex_) = 0;
  bool stopping_ EFS_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace efs
