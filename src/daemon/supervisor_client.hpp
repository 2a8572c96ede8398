#pragma once
// The worker's side of the channel: asks the supervisor for what needs privilege. Thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "daemon/channel.hpp"
#include "daemon/memory_stores.hpp"
#include "fuse/backing.hpp"
#include "fuse/session.hpp"

namespace efs::daemon {

class SupervisorClient final : public fuse::BackingRegistrar {
 public:
  explicit SupervisorClient(UniqueFd channel) : channel_(std::move(channel)) {}

  struct MemoryStore {
    UniqueFd root;
    // by an earlier instance or a predecessor, with all that it holds; its size is what it was
    bool left = false;
  };

  /// A private tmpfs for a backend.
  Result<MemoryStore> memory_store(const MemoryStores::Ask& wanted);
  /// What the machine has available and no other store in memory was promised, bytes.
  Result<std::uint64_t> unpromised_memory();
  /// Of several backends one lies where this file is.
  Status store_at(int file);
  /// The lock of a store, open but not yet locked: the one to lock, which the supervisor keeps open
  /// to the end.
  Result<UniqueFd> hold_store(const UniqueFd& lock);
  /// Whether the store is left when this instance ends, however it ends.
  void keep_store(bool keep);
  /// Unmounts `name` in `parent` where that is a mount of this user that nobody serves any more;
  /// EBUSY where it is served.
  Status drop_dead_mount(int parent, const std::string& name);
  Status check_mount(int mount_point);
  /// Mounts over the directory `mount_point`; the FUSE descriptor.
  Result<UniqueFd> mount(int mount_point, std::uint64_t flags, const std::string& source);
  /// EBUSY while anybody uses the mount. Ok when it is unmounted already. `unusual`: a successor is
  /// to wait for whoever asks for a stop.
  Status unmount(bool unusual);
  /// Ends the connection by force: programs on the mount get errors instead of waiting for ever.
  void abort();

  std::vector<Result<int>> open_backing(std::span<const fuse::Registration> files) override;
  void close_backing(std::span<const int> ids) override;
  void keep_to_daemon(std::uint64_t ino, bool open) override;

  /// For a successor: see Session::serve().
  void keep_init(const fuse::InitRequest& init);

  /// The connection of a mount whose worker died; ENOTCONN where there is none.
  struct Connection {
    UniqueFd fuse;
    fuse::InitRequest init;
    std::vector<fuse::InheritedBacking> backings;
  };

  Result<Connection> resume();
  void report_progress();

 private:
  Result<Received> ask(const Message& message, std::span<const int> fds = {});

  const UniqueFd channel_;
  Mutex mutex_;  // rank 60: one question at a time
};

}  // namespace efs::daemon
