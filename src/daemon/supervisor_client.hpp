#pragma once
// The worker's side of the channel: asks the supervisor for what needs privilege. Thread-safe.

#include <cstdint>
#include <string>

#include "base/mutex.hpp"
#include "daemon/channel.hpp"
#include "fuse/backing.hpp"

namespace efs::daemon {

class SupervisorClient final : public fuse::BackingRegistrar {
 public:
  explicit SupervisorClient(UniqueFd channel) : channel_(std::move(channel)) {}

  struct MemoryStore {
    UniqueFd root;
    bool left = false;  // by an earlier instance, with all that it holds; its size is what it was
  };
  /// A private tmpfs of `bytes` for the store.
  Result<MemoryStore> memory_store(std::uint64_t bytes);
  /// Whether the store is left when this instance ends, however it ends.
  void keep_store(bool keep);
  /// Unmounts `name` in `parent` where that is a mount of this user that nobody serves any more; EBUSY where it is served.
  Status drop_dead_mount(int parent, const std::string& name);
  Status check_mount(int mount_point);
  /// Mounts over the directory `mount_point`; the FUSE descriptor.
  Result<UniqueFd> mount(int mount_point, std::uint64_t flags, const std::string& source);
  /// EBUSY while anybody uses the mount. Ok when it is unmounted already.
  Status unmount();
  /// Ends the connection by force: programs on the mount get errors instead of waiting for ever.
  void abort();

  Result<int> open_backing(int fd) override;
  void close_backing(int id) override;

 private:
  Result<Received> ask(const Message& message, int fd = -1);

  const UniqueFd channel_;
  Mutex mutex_;  // rank 60: one question at a time
};

}  // namespace efs::daemon
