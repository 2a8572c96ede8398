// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The programs that intercept: each has the door of the mount open (base/intercept_door.hpp) and
// reports what it serves itself.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/intercept_door.hpp"
#include "base/mutex.hpp"

namespace efs::fuse {

/// What all clients of a mount have served, ended ones and those of earlier workers included. Lies
/// in memory that outlives a worker. Relaxed atomics; no figure overflows.
struct DoorTotals {
  std::atomic<std::uint64_t> clients{0}, reads{0}, read_bytes{0}, writes{0}, written_bytes{0},
      kernel_calls{0};
};

/// A client can do no harm: its figures saturate, and only so many clients are told apart.
/// Thread-safe.
class DoorClients {
 public:
  /// Further clients are counted, but not kept.
  static constexpr std::size_t most = 4096;

  struct Client {
    pid_t pid = 0;        // 0: of another pid namespace
    std::string program;  // of /proc/PID/comm; "": unknown
    DoorCounts counts{};
  };

  /// `totals` must outlive this object.
  explicit DoorClients(DoorTotals& totals);

  /// A program has opened the door. Returns the handle of the open, which no other open of this
  /// mount has, also of earlier workers. Throws nothing: without memory the client is not kept.
  std::uint64_t opened(pid_t pid) noexcept;
  /// Adds a report. A client of an earlier worker is kept from its first report on.
  void reported(std::uint64_t handle, pid_t pid, const DoorCounts& counts) noexcept;
  /// Without effect for a handle of an earlier worker that has not reported since. Returns true for
  /// a handle of opened().
  bool closed(std::uint64_t handle) noexcept;

  /// Opens of opened() without closed().
  std::size_t open() const { return open_; }

  /// Clients that are kept now.
  std::size_t kept() const;
  /// At most `most_shown` of them, those that opened first.
  std::vector<Client> list(std::size_t most_shown) const;

 private:
  void keep(std::uint64_t handle, pid_t pid, const DoorCounts& counts) noexcept;

  DoorTotals& totals_;
  // Every handle of this worker is larger than those of earlier workers, because the clock that it
  // begins with runs on.
  const std::uint64_t first_;
  std::atomic<std::uint64_t> next_;
  std::atomic<std::size_t> open_{0};
  mutable Mutex mutex_;  // rank 90 (leaf)
  std::unordered_map<std::uint64_t, Client> clients_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::fuse
