// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The containers of removed files that are not removed yet. While half of the store is free no
// program waits for their space. So a removal is answered first, and a thread that serves no
// requests removes the container. After a death the next start removes them: no record has their
// numbers (fs/recovery.cpp).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mutex.hpp"

namespace efs::fs {

/// Thread-safe.
class PutOffRemovals {
 public:
  static constexpr std::size_t most = 1024;

  /// Throws std::bad_alloc.
  PutOffRemovals() { waiting_.reserve(most); }

  /// Returns how many wait with this one; 0 if there are `most` already, and it was not added. Does
  /// not throw.
  std::size_t add(std::uint64_t container) {
    MutexLock lock(mutex_);
    if (waiting_.size() == most) {
      return 0;
    }
    waiting_.push_back(container);
    return size_ = waiting_.size();
  }

  /// Returns the next one for the caller to remove; 0: none.
  std::uint64_t take() {
    MutexLock lock(mutex_);
    if (waiting_.empty()) {
      return 0;
    }
    const std::uint64_t taken = waiting_.back();
    waiting_.pop_back();
    size_ = waiting_.size();
    return taken;
  }

  std::size_t size() const { return size_; }

 private:
  Mutex mutex_;  // rank 90 (leaf)
  std::vector<std::uint64_t> waiting_ EFS_GUARDED_BY(mutex_);
  std::atomic<std::size_t> size_{0};
};

}  // namespace efs::fs
