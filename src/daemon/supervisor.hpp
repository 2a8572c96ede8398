#pragma once
// The supervisor: mounts, keeps the FUSE descriptor, registers backing files, cleans up behind a
// worker that died. It parses nothing that a user wrote and follows no path that a user names; all
// it gets are the descriptors and numbers of channel.hpp, checked here. Single-threaded.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
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
  UniqueFd store;     // O_PATH: the empty directory a private tmpfs is mounted on
  // /dev/fuse, opened before privilege was dropped; none where not privileged
  UniqueFd fuse_device;
  std::string source{};     // of the mount
  bool privileged = false;  // may mount by itself; else by fusermount3
  // at first: an earlier instance's store may be there, and is no start's to drop
  bool keep_store = false;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options) : options_(std::move(options)) {}

  /// Answers the worker until it closes its end, or is killed; `watch`: sees to it meanwhile.
  Status serve(int channel, WorkerWatch* watch = nullptr);

  /// The worker asked for it: what the store holds may be the only copy.
  bool keeps_store() const { return keep_store_; }

  /// What a worker leaves behind.
  enum class ShutdownState : std::uint8_t {
    nothing,  // the kernel's first request was never answered: no program has written anything
    mount,    // programs wait for a successor
    results,  // unmounted; what was written is in the store
  };
  ShutdownState left() const;

  /// Was it unmounted for a stop that wanted something else than the results brought back? A
  /// successor must not go on without being asked.
  bool stop_is_unusual() const { return stop_is_unusual_; }

  /// Whether the worker has said, since the last question, that it answers new requests.
  bool take_progress() { return std::exchange(progress_, false); }

  /// Ends a mount that nobody serves, at any price: programs that hold it get an error, not a hang.
  void clean_up() { mount_.detach(); }

  /// Others may use the stores again. Before the instance can be found at rest: who finds it so may
  /// go on with them.
  void let_go_of_stores() { store_locks_.clear(); }

  /// In a child: a connection ends with its last descriptor.
  void close_descriptors();

 private:
  static Result<std::optional<Received>> receive(int channel);
  /// nullopt: nobody waits for an answer.
  std::optional<Message> answer_if_asked(Received& received, UniqueFd& fd);
  Message answer(Received& received, UniqueFd& fd);
  Message memory_store(const Message& ask, UniqueFd& fd);
  Message unpromised() const;
  Message store_at(const UniqueFd& file);
  Message hold_store(UniqueFd lock, UniqueFd& fd);
  Message drop_dead(const Message& ask, const UniqueFd& parent);
  Message mount(const Message& ask, const UniqueFd& point, UniqueFd& fd);
  Message unmount(const Message& ask);
  bool one_way(const Message& ask);
  Message open_backing(const Received& ask);
  int open_backing(const UniqueFd& container);
  void close_backing(const Message& ask);
  Message keep_init(const Message& ask);
  Message resume(UniqueFd& fd) const;
  Message inherited(UniqueFd& fd) const;

  SupervisorOptions options_;
  Mount mount_{options_.uid, options_.gid, options_.privileged, std::move(options_.fuse_device)};
  MemoryStores memory_{options_.instance.get(), std::move(options_.store), options_.uid,
                       options_.gid};
  // that containers lie on, as far as that was said; none: on any
  std::set<dev_t> store_devices_;
  // shared with the worker: while it is replaced nobody else gets them
  std::vector<UniqueFd> store_locks_;
  bool keep_store_ = options_.keep_store;
  bool progress_ = false;
  bool stop_is_unusual_ = false;
  std::string init_;                                          // the connection's INIT request
  std::unordered_map<std::int32_t, std::uint64_t> backings_;  // backing id -> inode
  // inodes that are open on the daemon's path
  std::unordered_set<std::uint64_t> on_daemon_;
};

}  // namespace efs::daemon
