#pragma once
// One mounted FUSE connection: receives requests, hands each to the adapter, ends with the unmount.

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "fs/filesystem.hpp"
#include "fuse/backing.hpp"

struct fuse_session;

namespace efs::fuse {

/// Counters of the requests that reached the daemon; passthrough I/O does not and is not in them.
struct Counters {
  std::atomic<std::uint64_t> requests{0}, opens{0}, passthrough_opens{0}, read_bytes{0}, written_bytes{0};
};

/// What the callbacks work on: one per connection, handed to libfuse as user data.
struct Door {
  fs::Filesystem& filesystem;
  BackingTable backing;
  Counters counters;
  fuse_session* session = nullptr;  // constant while requests are served
};

class Session {
 public:
  /// `registrar`: null for the daemon's path only. Both must outlive the session.
  Session(fs::Filesystem& filesystem, BackingRegistrar* registrar);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Serves `fuse_fd` (a mounted /dev/fuse) until it is unmounted; ok then. Call once.
  Status serve(UniqueFd fuse_fd, unsigned threads);

  const Counters& counters() const { return door_.counters; }
  /// True once the kernel has agreed to passthrough.
  bool passthrough() const { return door_.backing.enabled(); }

 private:
  Door door_;
};

/// The request of the kernel that this thread is working on (its `unique`), 0 outside of one.
std::uint64_t current_request();

}  // namespace efs::fuse
