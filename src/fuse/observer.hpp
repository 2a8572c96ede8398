// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Observation of requests. The observer counts each request, and describes it with its path to the
// sinks, if there are any. A Request (request.hpp) makes the calls.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "fuse/counters.hpp"
#include "fuse/name_table.hpp"

namespace efs::fuse {

/// A finished request.
struct Event {
  Operation operation = Operation::other;
  bool truncates = false;      // a setattr that sets the size
  Nanoseconds started = 0;     // wall clock
  std::uint64_t duration = 0;  // nanoseconds
  uid_t uid = 0;
  gid_t gid = 0;
  // 0: a request of the kernel itself (read-ahead), or of a process in another pid namespace
  pid_t pid = 0, tid = 0;
  std::string path;  // as the mount shows it, from "/"
  // new path of rename and link; target of symlink; name of an extended attribute
  std::string other;
  std::uint64_t offset = 0, size = 0;  // of operations that have them
  std::uint64_t bytes = 0;             // moved
  int error = 0;                       // errno, 0: good
};

/// Thread-safe. The threads that serve requests call it after the reply. It must not access the
/// mount.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void operation(const Event& event) = 0;
};

/// The subject of a request, from the arguments of its callback. Names are borrowed.
struct Subject {
  std::uint64_t ino = 0;  // the parent, if there is a name
  const char* name = nullptr;
  std::uint64_t new_parent = 0;
  const char* new_name = nullptr;  // of rename and link; target of symlink
  std::uint64_t offset = 0, size = 0;
  bool truncates = false;  // a setattr that sets the size
};

/// The reply to a request.
struct Outcome {
  int error = 0;  // errno
  std::uint64_t bytes = 0;
  std::uint64_t made = 0;  // the inode of an entry
  bool missing = false;    // success to the kernel, with the content "there is no such name"
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

  /// True if there are sinks. The observer keeps names only for sinks.
  bool listens() const { return !sinks_.empty(); }

  /// Records the names that a successful operation adds or changes. `made`: the inode of the
  /// reply's entry. Call before the reply: after it other requests can use the name. Throws
  /// std::bad_alloc.
  void learn(Operation operation, const Subject& subject, std::uint64_t made);

  /// The kernel drops `count` references.
  void forget(std::uint64_t ino, std::uint64_t count) { names_.forget(ino, count); }

  /// Returns the part of the event that is known before the operation. After the operation the
  /// client and the name may no longer exist. Throws std::bad_alloc.
  Event describe(Operation operation, const Subject& subject, uid_t uid, gid_t gid,
                 pid_t tid) const;
  void tell(const Event& event) const;

 private:
  const std::vector<EventSink*> sinks_;
  NameTable names_;
};

}  // namespace efs::fuse
