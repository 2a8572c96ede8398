#pragma once
// How code of any layer tells the thread that runs it: what follows may take long. A thread that
// serves others listens and sees that somebody else serves meanwhile (fuse/request_loop.hpp);
// everywhere else nothing happens.

#include <cstddef>

namespace efs {

/// A copy of more bytes than this counts as slow.
inline constexpr std::size_t slow_copy = 64 * 1024;

/// Hears of slow work on the thread that it listens on. Must not throw, nor take a lock of a rank
/// below 85.
class SlowWorkListener {
 public:
  virtual ~SlowWorkListener() = default;
  virtual void slow_work_begins() = 0;
};

/// Call before work that can take long compared with a request for metadata: a sync, a large copy,
/// a truncation, a wait for somebody who does such work. Any thread, any number of times, under any
/// lock; costs a load where nobody listens.
void slow_work_begins();

/// Lets `listener` hear of slow work on this thread, for a scope.
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
