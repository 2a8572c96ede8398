#pragma once
// One mounted FUSE connection: receives requests, hands each to the adapter, ends with the unmount.

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "base/mutex.hpp"
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
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
};

class Session final : public fs::KernelView {
 public:
  /// `registrar`: null for the daemon's path only. Both must outlive the session.
  Session(fs::Filesystem& filesystem, BackingRegistrar* registrar);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Serves `fuse_fd` (a mounted /dev/fuse) until it is unmounted; ok then. Call once.
  Status serve(UniqueFd fuse_fd, unsigned threads);

  const Counters& counters() const { return door_.counters; }
  /// True once the kernel has agreed to passthrough.
  bool passthrough() const { return door_.backing.enabled(); }

  void name_changed(std::uint64_t parent, const std::string& name) override;
  void name_removed(std::uint64_t parent, const std::string& name, std::uint64_t ino, bool last) override;
  void attributes_changed(std::uint64_t ino) override;
  void let_go(std::uint64_t ino) override { door_.backing.let_go(ino); }

 private:
  void publish_session(fuse_session* session);

  Door door_;
  SharedMutex notify_;  // rank 38: held shared while the kernel is told something, exclusively to end that
  fuse_session* session_ EFS_GUARDED_BY(notify_) = nullptr;
};

/// The request of the kernel that this thread is working on (its `unique`), 0 outside of one.
std::uint64_t current_request();

}  // namespace efs::fuse
