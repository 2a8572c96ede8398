// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Passthrough: which inode the kernel serves by itself, and under which backing id.

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "fs/container_pool.hpp"

namespace efs::fuse {

/// A container to be registered, and the inode under which a successor finds its id again.
struct Registration {
  std::uint64_t ino = 0;
  int fd = -1;
};

/// Registers descriptors with the FUSE connection (FUSE_DEV_IOC_BACKING_OPEN). That needs
/// privilege, so it is a seam: the supervisor does it for a worker that has none. Thread-safe.
class BackingRegistrar {
 public:
  /// So many descriptors or ids fit in one call.
  static constexpr std::size_t most_at_once = 32;
  virtual ~BackingRegistrar() = default;
  /// For each descriptor its id, or why there is none. Waits for the answer.
  virtual std::vector<Result<int>> open_backing(std::span<const Registration> files) = 0;
  /// Waits for nothing. An id that is closed by nobody goes with the connection.
  virtual void close_backing(std::span<const int> ids) = 0;
  /// The inode is open on the daemon's path, or not any more: a successor must not offer
  /// passthrough while it is. Waits for nothing.
  virtual void keep_to_daemon(std::uint64_t ino, bool open) = 0;
};

/// What a predecessor had registered: id 0 is the daemon's path.
struct InheritedBacking {
  std::uint64_t ino = 0;
  std::int32_t id = 0;
  std::uint32_t unused = 0;
};

/// How many ids of files that nobody has open are kept: each is an open file of the kernel's, of
/// which a machine has so many for all its jobs together (proc_sys_fs(5), file-max). A 64th of
/// them, within BackingTable's bounds.
std::size_t ids_to_keep();

/// All opens of one inode use one mode and one backing id (knowledge of the kernel:
/// fs/fuse/iomode.c). An id stays registered for a while after the last close, in bounded number,
/// for files that are opened again and again. Ids are closed in batches: until a batch is full,
/// until the inodes that wait held `most_held` bytes, or until the loop has time for housekeeping.
/// A registered file keeps its space, so what waits here is what a removal may still owe.
/// Thread-safe.
class BackingTable final {
 public:
  static constexpr std::size_t fewest_idle = 16384, most_idle = 65536;
  static constexpr std::uint64_t most_held = 1u << 20;  // bytes

  /// `registrar` may be null: then everything takes the daemon's path. `idle`: ids that are kept.
  BackingTable(BackingRegistrar* registrar, std::size_t idle)
      : registrar_(registrar), idle_limit_(idle) {}

  /// The connection is gone when this runs; the kernel has dropped the ids with it.
  ~BackingTable() = default;

  /// After a takeover, before the first request. How often these are open is not known, so they
  /// stay until drop(). Of two ids of one inode the later stays. `exists`: whether there is such an
  /// inode; what was registered for a file that never came to be is closed.
  void inherit(std::span<const InheritedBacking> inherited,
               const std::function<bool(std::uint64_t)>& exists);
  /// Registers containers that no inode uses yet, in one question per batch. They count as idle
  /// until acquire().
  void prepare(std::span<const fs::ContainerPool::Ready> containers);

  struct Acquired {
    int id = 0;  // 0: the daemon's path
    // nothing was counted: ask again with the container, or without the wish
    bool needs_container = false;
    // it had to be registered, and is not the first of its row: the others are worth it, too, as it
    // seems
    bool row = false;
  };

  /// Counts an open. `wanted`: passthrough is allowed for this inode. `container` is looked at only
  /// where there is no id for it yet, so it may be null at first. (Where nothing is registered it
  /// is asked for all the same: who cannot open it shall hear of that now.)
  Result<Acquired> acquire(std::uint64_t ino, bool wanted, Container* container);
  /// The inodes of `ino`'s row that are not known here: its neighbours by number, most_at_once with
  /// itself. What was staged in together, or made together, is often opened together. None where as
  /// many are known as may be kept.
  std::vector<std::uint64_t> rest_of_batch(std::uint64_t ino) const EFS_EXCLUDES(mutex_);
  /// Registers those of them (most_at_once at most) that still are unknown, in one question; how
  /// many. They count as idle until acquire(). A caller looks afterwards whether one of them has
  /// gone meanwhile, and drops it.
  std::size_t register_batch(std::span<const fs::ContainerPool::Ready> files);
  void release(std::uint64_t ino);
  /// Ends the registration of an inode that nobody has open; returns when it has ended.
  void let_go(std::uint64_t ino);
  /// Returns when every registration that was dropped has ended: the kernel holds no space of
  /// theirs any more.
  void close_dropped();
  /// The inode is gone; its container held so many bytes.
  void drop(std::uint64_t ino, std::uint64_t bytes);
  /// The daemon does this inode's I/O, as far as it is open.
  bool keeps_to_daemon(std::uint64_t ino) const EFS_EXCLUDES(mutex_);

  bool enabled() const { return registrar_ != nullptr && !refused_; }

  /// Before the first open.
  void disable() { registrar_ = nullptr; }

  /// The kernel registers none of the containers: from now on none is asked for. Any time, any
  /// thread.
  void refuse() { refused_ = true; }

  bool due() const { return waiting_.load(std::memory_order_relaxed); }

  /// Closes what waits to be closed.
  void run();

 private:
  struct Slot {
    int id = 0;
    std::uint64_t opens = 0;
    bool idle = false;                              // not open
    std::list<std::uint64_t>::iterator place = {};  // in idle_, else in open_
  };

  using Ids = std::vector<int>;

  /// Of a new inode, not idle. Throws std::bad_alloc; nothing else that a release or a removal
  /// calls does.
  Slot& add(std::uint64_t ino, int id, std::uint64_t opens) EFS_REQUIRES(mutex_);
  /// Without memory for it the id is closed again.
  void add_idle(std::uint64_t ino, int id) EFS_REQUIRES(mutex_);
  void make_idle(Slot& slot) EFS_REQUIRES(mutex_);
  void make_used(Slot& slot) EFS_REQUIRES(mutex_);
  void erase(std::unordered_map<std::uint64_t, Slot>::iterator it) EFS_REQUIRES(mutex_);
  /// Ends the registration of an inode that is not open, if there is one; the ids to close now.
  Ids revoke_unopened(Slot& slot) EFS_REQUIRES(mutex_);
  void count_open(std::uint64_t ino, Slot& slot) EFS_REQUIRES(mutex_);
  int register_now(std::uint64_t ino, Container& container) EFS_REQUIRES(mutex_);
  bool has_others_of_row(std::uint64_t ino) const EFS_REQUIRES(mutex_);

  bool deserves_batch(std::uint64_t ino) const EFS_REQUIRES(mutex_) {
    return has_others_of_row(ino) && has_room_for_row();
  }

  /// Those that are open count, too: after a takeover it is not known which are.
  bool has_room_for_row() const EFS_REQUIRES(mutex_) {
    return slots_.size() + BackingRegistrar::most_at_once <= idle_limit_;
  }

  void close_later(int id, std::uint64_t bytes) EFS_REQUIRES(mutex_);
  /// What has to be closed now: nothing, or all that waits.
  Ids take_closing(bool all) EFS_REQUIRES(mutex_);
  void close(const Ids& ids);

  BackingRegistrar* registrar_;
  const std::size_t idle_limit_;
  std::atomic<bool> refused_{false};
  // rank 35; what an open may ask for is registered under it, so that nothing is registered twice
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Slot> slots_ EFS_GUARDED_BY(mutex_);
  // inodes of slots; the last one that was used first
  std::list<std::uint64_t> idle_ EFS_GUARDED_BY(mutex_);
  // those of the others: a place in a list costs no memory later
  std::list<std::uint64_t> open_ EFS_GUARDED_BY(mutex_);
  Ids closing_ EFS_GUARDED_BY(mutex_);  // at most most_at_once
  std::uint64_t closing_bytes_ EFS_GUARDED_BY(mutex_) = 0;
  int last_refusal_ EFS_GUARDED_BY(mutex_) = 0;  // errno; what the log has already
  std::atomic<bool> waiting_{false};             // closing_ is not empty
};

}  // namespace efs::fuse
