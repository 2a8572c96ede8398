// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Work that requests leave behind and that no client waits for. What frees space or registrations
// runs on the leader's thread, when it has no request. What only prepares or removes containers
// runs on a thread of its own: on a machine with a free processor it costs the client nothing.

#include <thread>

#include "base/mutex.hpp"
#include "fuse/request_loop.hpp"

namespace efs::fuse {

struct Connection;

class Upkeep final : public Housekeeping {
 public:
  /// So many removals that are put off wake the thread.
  static constexpr std::size_t removals_at_once = 16;

  /// Borrows the connection. Starts no thread yet.
  explicit Upkeep(Connection& connection) : connection_(connection) {}

  /// Waits for the work that has begun.
  ~Upkeep() override;
  Upkeep(const Upkeep&) = delete;
  Upkeep& operator=(const Upkeep&) = delete;

  bool due() const override;
  void run() override;

  /// Has the thread fill the pool of containers and remove what is put off. Starts the thread at
  /// the first call. Does the work itself if the system refuses a thread. Does not throw. Any
  /// thread.
  void wake() noexcept;
  /// The same within some milliseconds, so that a series of removals wakes the thread once.
  void wake_soon() noexcept;

 private:
  bool has_thread(bool soon) EFS_EXCLUDES(mutex_);
  void serve() noexcept;
  void work() noexcept;

  Connection& connection_;
  Mutex mutex_;  // rank 90 (leaf)
  Condition wake_;
  bool wanted_ EFS_GUARDED_BY(mutex_) = false;
  bool soon_ EFS_GUARDED_BY(mutex_) = false;  // in a moment it is wanted
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  bool refused_ EFS_GUARDED_BY(mutex_) = false;  // the system has refused a thread
  std::jthread thread_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::fuse
