// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The supervisor mounts, keeps the FUSE descriptor, registers backing files, and cleans up after a
// dead worker. It parses no text of a user and follows no path that a user names. Its only inputs
// are the descriptors and numbers of channel.hpp, which it checks. Single-threaded.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "daemon/channel.hpp"
#include "daemon/memory_stores.hpp"
#include "daemon/mount.hpp"
#include "daemon/worker_watch.hpp"

namespace efs::daemon {

struct SupervisorOptions {
  uid_t uid = 0;
  gid_t gid = 0;
  UniqueFd instance;  // the instance's directory
  UniqueFd store;     // O_PATH: the empty directory for the mount of a private tmpfs
  // /dev/fuse, opened before privilege was dropped; unused unless privileged
  UniqueFd fuse_device;
  std::string source{};     // the source that mount(8) shows
  bool privileged = false;  // may mount directly; otherwise through fusermount3
  // the initial value: a start must not remove the store of an earlier instance
  bool keep_store = false;
  // the memory file of the mount's door, which is registered like a container; -1: none; borrowed
  int door = -1;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options) : options_(std::move(options)) {}

  /// Answers the worker until the worker closes its end or dies. `watch` observes the worker
  /// meanwhile.
  Status serve(int channel, WorkerWatch* watch = nullptr);

  /// True if the worker requested it: the store may hold the only copy of the results.
  bool keeps_store() const { return keep_store_; }

  /// The state that a worker leaves behind.
  enum class ShutdownState : std::uint8_t {
    nothing,  // the kernel's first request was never answered: no program has written anything
    mount,    // programs wait for a successor
    results,  // unmounted; the written data are in the store
  };
  ShutdownState left() const;

  /// True if the worker unmounted for an unusual stop. A successor must wait for a client to repeat
  /// the request.
  bool stop_is_unusual() const { return stop_is_unusual_; }

  /// Returns whether the worker has reported an answer to a new request since the last call.
  bool take_progress() { return std::exchange(progress_, false); }

  /// Ends a mount that has no worker, even if it is in use: programs get an error instead of a
  /// hang.
  void clean_up() { mount_.detach(); }

  /// Releases the stores for other instances. Call this before other processes can see the instance
  /// as ended, because they may then start on its stores.
  void let_go_of_stores() { store_locks_.clear(); }

  /// Call this in a child: a connection ends only when its last descriptor is closed.
  void close_descriptors();

 private:
  static Result<std::optional<Received>> receive(int channel);
  /// Returns nullopt for a message that is never answered.
  std::optional<Message> answer_if_asked(Received& received, UniqueFd& fd);
  Message answer(Received& received, UniqueFd& fd);
  /// The requests that concern the mount. EINVAL for an unknown request.
  Message answer_about_mount(Received& received, UniqueFd& fd);
  Message memory_store(const Message& ask, UniqueFd& fd);
  Message unpromised() const;
  Message store_at(const UniqueFd& file);
  Message hold_store(UniqueFd lock, UniqueFd& fd);
  Message drop_dead(const Message& ask, const UniqueFd& parent);
  Message mount(const Message& ask, const UniqueFd& point, UniqueFd& fd);
  Message unmount(const Message& ask);
  Message open_backing(const Received& ask);
  int open_backing(const UniqueFd& container);
  bool is_door(const struct stat& file) const;
  void close_backing(const Message& ask);
  Message keep_init(const Message& ask);
  Message resume(UniqueFd& fd) const;
  Message inherited(UniqueFd& fd) const;

  SupervisorOptions options_;
  Mount mount_{options_.uid, options_.gid, options_.privileged, std::move(options_.fuse_device)};
  MemoryStores memory_{options_.instance.get(), std::move(options_.store), options_.uid,
                       options_.gid};
  // the devices of the containers, as far as the worker named them; empty: any device
  std::set<dev_t> store_devices_;
  // shared with the worker: they keep the stores locked while a worker is replaced
  std::vector<UniqueFd> store_locks_;
  bool keep_store_ = options_.keep_store;
  bool progress_ = false;
  bool stop_is_unusual_ = false;
  std::string init_;                                          // the INIT request of the connection
  std::unordered_map<std::int32_t, std::uint64_t> backings_;  // backing id -> inode
};

}  // namespace efs::daemon
