#pragma once
// A fixed set of threads for staging. Not used on the request path.

#include <cstddef>
#include <deque>
#include <functional>
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

  std::mutex mutex_;  // guards all below; rank 90 (leaf): nothing is taken under it
  std::condition_variable work_ready_, idle_;
  std::deque<std::function<void()>> queue_;
  std::size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace efs
