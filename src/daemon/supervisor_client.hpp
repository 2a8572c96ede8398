// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The worker's side of the channel. Requests privileged operations from the supervisor.
// Thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "daemon/channel.hpp"
#include "daemon/memory_stores.hpp"
#include "daemon/mount_privileges.hpp"

namespace efs::daemon {

class SupervisorClient final : public MountPrivileges {
 public:
  explicit SupervisorClient(UniqueFd channel) : channel_(std::move(channel)) {}

  struct MemoryStore {
    UniqueFd root;
    // an earlier instance or a predecessor left it with its contents and its size
    bool left = false;
  };

  /// Gets a private tmpfs for a backend.
  Result<MemoryStore> memory_store(const MemoryStores::Ask& wanted);
  /// Returns the available memory of the machine in bytes, less the promises to other stores in
  /// memory.
  Result<std::uint64_t> unpromised_memory();
  /// Reports that one of several backends is on the device of this file.
  Status store_at(int file);
  /// Returns the descriptor to lock for the store. `lock` is open but not yet locked. The
  /// supervisor keeps the returned descriptor open until the instance ends.
  Result<UniqueFd> hold_store(const UniqueFd& lock);
  /// Sets whether the store stays when this instance ends for any reason.
  void keep_store(bool keep);
  Status drop_dead_mount(int parent, const std::string& name) override;
  Status check_mount(int mount_point) override;
  Result<UniqueFd> mount(int mount_point, std::uint64_t flags, const std::string& source) override;
  Status unmount(bool unusual) override;
  void abort() override;

  std::vector<Result<int>> open_backing(std::span<const fuse::Registration> files) override;
  void close_backing(std::span<const int> ids) override;

  void keep_init(const fuse::InitRequest& init) override;

  /// The connection of a mount whose worker died; ENOTCONN if there is none.
  struct Connection {
    UniqueFd fuse;
    fuse::InitRequest init;
    std::vector<fuse::InheritedBacking> backings;
  };

  Result<Connection> resume();
  void report_progress() override;

 private:
  Result<Received> ask(const Message& message, std::span<const int> fds = {});

  const UniqueFd channel_;
  Mutex mutex_;  // rank 60: one request at a time
};

}  // namespace efs::daemon
