// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The files of a transfer whose copies took the longest.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.hpp"

namespace efs::stage {

struct TimedFile {
  std::string path;
  std::uint64_t bytes = 0;
  double seconds = 0;  // time to copy it; 0: not measured
};

/// Thread-safe. Locks only for a file that is slower than the fastest one it has.
class SlowestFiles {
 public:
  explicit SlowestFiles(std::size_t most) : most_(most) {}

  void add(const std::string& path, std::uint64_t bytes, double seconds) {
    if (seconds <= least_.load(std::memory_order_relaxed)) {
      return;
    }
    const MutexLock lock(mutex_);
    files_.push_back({.path = path, .bytes = bytes, .seconds = seconds});
    std::ranges::push_heap(files_, is_slower);
    if (files_.size() > most_) {
      std::ranges::pop_heap(files_, is_slower);
      files_.pop_back();
      least_ = files_.front().seconds;
    }
  }

  /// The slowest first.
  std::vector<TimedFile> take() {
    const MutexLock lock(mutex_);
    std::ranges::sort(files_, is_slower);
    return std::move(files_);
  }

 private:
  static bool is_slower(const TimedFile& a, const TimedFile& b) { return a.seconds > b.seconds; }

  const std::size_t most_;
  std::atomic<double> least_{0};                         // of a full set
  Mutex mutex_;                                          // rank 90 (leaf)
  std::vector<TimedFile> files_ EFS_GUARDED_BY(mutex_);  // a heap: the fastest is at the front
};

}  // namespace efs::stage
