#pragma once
// Counts a running removal during its scope.

#include <atomic>
#include <cstdint>

#include "fs/filesystem.hpp"

namespace efs::fs {

/// Construct it before the namespace drops the file, and destroy it after the container is removed.
/// A thread that waits for removals must not own one.
class Filesystem::Removing {
 public:
  explicit Removing(std::atomic<std::uint32_t>& running) : running_(running) { ++running_; }

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
