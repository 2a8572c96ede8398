#include "base/thread_pool.hpp"

namespace efs {

ThreadPool::ThreadPool(std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
}

void ThreadPool::submit(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(task));
  }
  work_ready_.notify_one();
}

void ThreadPool::drain() {
  MutexLock lock(mutex_);
  while (!queue_.empty() || running_ > 0) idle_.wait(mutex_);
}

std::optional<std::function<void()>> ThreadPool::next() {
  MutexLock lock(mutex_);
  while (!stopping_ && queue_.empty()) work_ready_.wait(mutex_);
  if (queue_.empty()) return std::nullopt;
  auto task = std::move(queue_.front());
  queue_.pop_front();
  ++running_;
  return task;
}

void ThreadPool::done() {
  MutexLock lock(mutex_);
  --running_;
  if (queue_.empty() && running_ == 0) idle_.notify_all();
}

void ThreadPool::work() {
  while (auto task = next()) {
    (*task)();
    task.reset();  // what it holds goes before drain() returns
    done();
  }
}

}  // namespace efs
