#pragma once
// Watching requests from outside the callbacks: each is counted and, where somebody listens,
// described to him with its path. observed.cpp begins an Observation around a callback; reply.cpp
// fills in how it ended.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "fuse/counters.hpp"
#include "fuse/name_table.hpp"

namespace efs::fuse {

/// A request that is over.
struct Event {
  Operation operation = Operation::other;
  bool truncates = false;      // a setattr that sets the size
  Nanoseconds started = 0;     // wall clock
  std::uint64_t duration = 0;  // nanoseconds
  uid_t uid = 0;
  gid_t gid = 0;
  // 0: the kernel's own (read-ahead), or a process of another pid namespace
  pid_t pid = 0, tid = 0;
  std::string path;  // as the mount shows it, from "/"
  // new path of rename and link; target of symlink; name of an extended attribute
  std::string other;
  std::uint64_t offset = 0, size = 0;  // of operations that have them
  std::uint64_t bytes = 0;             // moved
  int error = 0;                       // errno, 0: good
};

/// Thread-safe; called on the threads that serve, after the reply. Must not touch the mount.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void operation(const Event& event) = 0;
};

/// What is known of a request that is served on this thread.
struct Observation {
  Operation operation = Operation::other;
  std::uint64_t ino = 0, new_parent = 0;
  const char* name = nullptr;
  const char* new_name = nullptr;
  std::uint64_t offset = 0, size = 0;
  std::uint64_t count = 0;  // of forget
  bool truncates = false;
  // The reply
  int error = 0;
  std::uint64_t bytes = 0;
  std::uint64_t made = 0;  // the inode of an entry
  bool missing = false;    // "there is no such name", which the kernel is told as a good answer
};

/// One per connection. Thread-safe after construction.
class Observer {
 public:
  /// `kept`: counters that outlive this process, borrowed; null: its own.
  explicit Observer(std::vector<EventSink*> sinks, Counters* kept = nullptr)
      : counters(kept != nullptr ? *kept : own_), sinks_(std::move(sinks)) {}

  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

 private:
  Counters own_;

 public:
  Counters& counters;

  /// Does anybody want more than figures? Names are kept for those only.
  bool listens() const { return !sinks_.empty(); }

  /// Before the reply: from then on others can use the name.
  void learn(const Observation& observation);
  /// What the event needs of the time before the reply: the caller may be gone, and the name too,
  /// afterwards.
  Event describe(const Observation& observation, uid_t uid, gid_t gid, pid_t tid) const;
  void tell(const Event& event) const;

 private:
  const std::vector<EventSink*> sinks_;
  NameTable names_;
};

}  // namespace efs::fuse
