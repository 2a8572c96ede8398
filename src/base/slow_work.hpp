// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lets code of any layer announce slow work on its thread. A thread that serves requests listens,
// and has another thread serve meanwhile (fuse/request_loop.hpp). On other threads the announcement
// has no effect.

#include <cstddef>

namespace efs {

/// A copy of more bytes than this counts as slow.
inline constexpr std::size_t slow_copy = 64 * 1024;

/// Is notified of slow work on the thread that it listens on. Must not throw, and must not acquire
/// a lock of a rank below 85.
class SlowWorkListener {
 public:
  virtual ~SlowWorkListener() = default;
  virtual void slow_work_begins() = 0;
};

/// Call before work that can take long compared with a request for metadata: a sync, a large copy,
/// a truncation, or a wait for another thread that does such work. May be called on any thread, any
/// number of times, under any lock. Costs one load if there is no listener.
void slow_work_begins();

/// Returns whether this thread has a listener. To find out whether work will be slow may cost a
/// system call, which a thread without a listener need not make.
bool slow_work_is_heard();

/// Registers `listener` for slow work on this thread, for a scope.
class ListenForSlowWork {
 public:
  explicit ListenForSlowWork(SlowWorkListener& listener);
  ~ListenForSlowWork();
  ListenForSlowWork(const ListenForSlowWork&) = delete;
  ListenForSlowWork& operator=(const ListenForSlowWork&) = delete;

 private:
  SlowWorkListener* const before_;
};

}  // namespace efs
