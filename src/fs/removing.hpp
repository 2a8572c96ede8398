#pragma once
// A removal that is on its way, counted for its scope.

#include <atomic>
#include <cstdint>

#include "fs/filesystem.hpp"

namespace efs::fs {

/// Begin it before the namespace says that the file is gone, and end it when the container is. It
/// must not be in force in a thread that waits for removals.
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
