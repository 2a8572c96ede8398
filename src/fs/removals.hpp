// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counts what frees space, for threads that need the space.

#include <atomic>
#include <cstdint>

namespace efs::fs {

/// Thread-safe, without a lock.
class Removals {
 public:
  /// Records a removal or a truncation that may have freed space, or will.
  void note() { ++noted_; }

  /// How many were recorded.
  std::uint64_t noted() const { return noted_; }

  /// True while there is a Removing.
  bool any_running() const { return running_ > 0; }

  /// Returns when no Removing is left. Others may begin meanwhile, so the wait ends after some
  /// changes of their number.
  void wait() const {
    constexpr int most_changes = 256;
    for (int changes = 0; changes < most_changes; ++changes) {
      const auto running = running_.load();
      if (running == 0) {
        return;
      }
      running_.wait(running);
    }
  }

 private:
  friend class Removing;
  std::atomic<std::uint64_t> noted_{0};
  std::atomic<std::uint32_t> running_{0};
};

/// A running removal. Construct it before the namespace drops the file, and destroy it after the
/// container is removed. A thread that waits for removals must not own one.
class Removing {
 public:
  explicit Removing(Removals& removals) : running_(removals.running_) { ++running_; }

  ~Removing() {
    --running_;
    running_.notify_all();
  }

  Removing(const Removing&) = delete;
  Removing& operator=(const Removing&) = delete;

 private:
  std::atomic<std::uint32_t>& running_;
};

}  // namespace efs::fs
