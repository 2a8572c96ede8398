#pragma once
// One mounted FUSE connection: receives requests, hands each to the adapter, ends with the unmount.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "fs/filesystem.hpp"
#include "fuse/backing.hpp"
#include "fuse/observer.hpp"

struct fuse_session;

namespace efs::fuse {

/// What the callbacks work on: one per connection, handed to libfuse as user data.
struct Door {
  fs::Filesystem& filesystem;
  BackingTable backing;
  Observer observer;
  Counters& counters = observer.counters;
};

class Session {
 public:
  /// `registrar`: null for the daemon's path only. `sinks` are told of every request. All must outlive the session.
  Session(fs::Filesystem& filesystem, BackingRegistrar* registrar, std::vector<EventSink*> sinks = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Serves `fuse_fd` (a mounted /dev/fuse) until it is unmounted; ok then. Call once.
  Status serve(UniqueFd fuse_fd, unsigned threads);

  const Counters& counters() const { return door_.observer.counters; }
  /// True once the kernel has agreed to passthrough.
  bool passthrough() const { return door_.backing.enabled(); }

 private:
  Door door_;
};

/// The request of the kernel that this thread is working on (its `unique`), 0 outside of one.
std::uint64_t current_request();

}  // namespace efs::fuse
