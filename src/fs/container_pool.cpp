// SPDX-License-Identifier: BSD-3-Clause
#include "fs/container_pool.hpp"

#include <algorithm>
#include <utility>

namespace efs::fs {

std::optional<ContainerPool::Ready> ContainerPool::take() {
  MutexLock lock(mutex_);
  if (ready_.empty()) {
    return std::nullopt;
  }
  std::optional<Ready> taken = std::move(ready_.back());
  taken->ahead = true;
  ready_.pop_back();
  look_whether_low();
  return taken;
}

void ContainerPool::look_whether_low() {
  low_ = !closed_ && asked_ == 0 && ready_.size() <= batch_ / 2;
}

void ContainerPool::put_back(Ready ready) {
  MutexLock lock(mutex_);
  ready_.push_back(std::move(ready));
}

std::size_t ContainerPool::begin_fill() {
  MutexLock lock(mutex_);
  if (closed_ || asked_ > 0 || ready_.size() > batch_ / 2) {
    return 0;
  }
  if (pause_ > 0) {
    --pause_;
    return 0;
  }
  asked_ = batch_;
  look_whether_low();
  return asked_;
}

void ContainerPool::end_fill(std::vector<Ready> made) {
  MutexLock lock(mutex_);
  if (made.size() < asked_) {
    pause_ = pause_after_failure;
  } else {
    batch_ = std::min(batch_ * 2, largest_batch);
  }
  asked_ = 0;
  // take() takes from the back: the oldest first. Does not allocate: the pool has at most `most`
  // containers, and at most as many are taken.
  ready_.insert(ready_.begin(), std::make_move_iterator(made.rbegin()),
                std::make_move_iterator(made.rend()));
  look_whether_low();
}

std::vector<ContainerPool::Ready> ContainerPool::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  look_whether_low();
  return std::exchange(ready_, {});
}

}  // namespace efs::fs
