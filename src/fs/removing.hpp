// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Parts of a removal: its count while it runs, and its space in the journal.

#include <atomic>
#include <cstdint>
#include <string>

#include "fs/filesystem.hpp"

namespace efs::fs {

inline constexpr const char* journal_name = "journal";

/// Journal space to keep back for the removal of a name, so that unlink works when all is full.
inline std::int64_t removal_reserve(const std::string& name) {
  return static_cast<std::int64_t>(store::Journal::record_size(name.size() + 32));
}

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
