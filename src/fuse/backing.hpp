// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Passthrough: the inodes whose I/O the kernel does itself, and their backing ids.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "fs/container_pool.hpp"

namespace efs::fuse {

/// A container to register. A successor finds its id by the inode number.
struct Registration {
  std::uint64_t ino = 0;
  int fd = -1;
};

/// Registers descriptors with the FUSE connection (FUSE_DEV_IOC_BACKING_OPEN). Registration needs
/// privilege: for an unprivileged worker the supervisor does it. Thread-safe.
class BackingRegistrar {
 public:
  /// The most descriptors or ids of one call.
  static constexpr std::size_t most_at_once = 32;
  virtual ~BackingRegistrar() = default;
  /// Returns an id or an error for each descriptor. Waits for the answer.
  virtual std::vector<Result<int>> open_backing(std::span<const Registration> files) = 0;
  /// Does not wait. The end of the connection closes all ids that are still open.
  virtual void close_backing(std::span<const int> ids) = 0;
};

/// A registration of the predecessor.
struct InheritedBacking {
  std::uint64_t ino = 0;
  std::int32_t id = 0;
  std::uint32_t unused = 0;
};

/// Returns the number of ids to keep for files that are not open, if `kept` are kept now. Each id
/// is an open file in the kernel, and file-max (proc_sys_fs(5)) limits the open files of all jobs
/// on the machine together. While all together have less than a quarter of file-max open, the
/// result is `kept` and half of what is left of that quarter; beyond it less than `kept`; always
/// within BackingTable's bounds. So all instances of a machine together stay within that quarter,
/// apart from `renewed_after` ids each until they look again, and the fewest.
std::size_t ids_to_keep(std::size_t kept);
/// The same for a machine with `open` open files (0: unknown) of at most `file_max`.
std::size_t ids_to_keep_of(std::size_t kept, std::uint64_t open, std::uint64_t file_max);

/// How the files of a full table are served: each new id closes another one. An id costs more than
/// all requests of a small file, unless it comes with a batch whose files are opened soon, as when
/// programs open neighbours one after the other. Not thread-safe.
class FullTablePolicy {
 public:
  /// More bytes are read faster with passthrough, even if the file is registered alone.
  static constexpr std::uint64_t most_bytes = 128u << 10;
  /// One of so many opens registers its file, so a file that is opened again and again gets an id.
  static constexpr unsigned registers_each = 16;

  /// A file without an id is opened.
  void opened(std::uint64_t ino) { lately_.at(next_++ % lately_.size()) = ino; }

  /// True if another file of the inode's batch was opened lately.
  bool has_neighbour(std::uint64_t ino) const;

  /// True if the open may take the daemon's path although passthrough is allowed.
  bool allows_daemon(std::uint64_t ino) {
    return !has_neighbour(ino) && ++asked_ % registers_each != 0;
  }

 private:
  std::array<std::uint64_t, 16> lately_{};  // more than there are programs that open in order
  std::size_t next_ = 0;
  unsigned asked_ = 0;
};

/// All opens of one inode use one mode and one backing id (the kernel requires this:
/// fs/fuse/iomode.c). An id stays registered after the last close, because programs often open the
/// same files again. The number of such ids is bounded. The table closes ids in batches: when a
/// batch is full, when the inodes of the pending ids held `most_held` bytes, or when the loop has
/// time for housekeeping. A registered file keeps its space, so the space of a removed file is not
/// free until its id is closed. Thread-safe.
class BackingTable final {
 public:
  static constexpr std::size_t fewest_idle = 256, most_idle = 262144;
  static constexpr std::size_t idle_if_unknown = 16384;  // no descriptor may be left to ask
  // The limit is renewed after so many ids have become idle.
  static constexpr unsigned renewed_after = 128;
  static constexpr std::uint64_t most_held = 1u << 20;  // bytes

  /// Returns the most ids to keep for files that are not open, if so many are kept. Called now and
  /// then, under the table's lock.
  using IdleLimit = std::function<std::size_t(std::size_t kept)>;

  /// `registrar` may be null: then all I/O takes the daemon's path.
  BackingTable(BackingRegistrar* registrar, IdleLimit idle)
      : registrar_(registrar), most_idle_now_(std::move(idle)), idle_limit_(most_idle_now_(0)) {}

  /// The connection has ended before the destructor runs, and the kernel has dropped the ids.
  ~BackingTable() = default;

  /// What is open of an inode, by the path of its I/O.
  struct Opens {
    std::uint64_t through = 0, by_daemon = 0;
  };

  using OpensByInode = std::unordered_map<std::uint64_t, Opens>;

  /// Call after a takeover, before the first request. `opens` may be too high, but not too low: all
  /// opens of an inode stay on their path, and on the id, until so many are released. If an inode
  /// has two ids, the later one stays. `exists` says whether an inode exists. The ids of inodes
  /// that do not exist are closed: their files were never created.
  void inherit(std::span<const InheritedBacking> inherited, const OpensByInode& opens,
               const std::function<bool(std::uint64_t)>& exists);
  /// Registers containers that no inode uses yet, with one call per batch. They count as idle until
  /// acquire().
  void prepare(std::span<const fs::ContainerPool::Ready> containers);

  struct Acquired {
    int id = 0;  // 0: the daemon's path
    // no open was counted: call again with the container, or with `wanted` false
    bool needs_container = false;
    // with needs_container: acquire_unregistered() may be called instead, for an open that only
    // reads a file of at most FullTablePolicy::most_bytes
    bool small_without = false;
    bool unregistered = false;  // of acquire_unregistered()
    // acquire() registered the inode, and it is not the first of its batch: the caller should
    // register the rest of the batch
    bool row = false;
  };

  /// Counts an open. `wanted`: passthrough is allowed for this inode. `container` may be null at
  /// first: it is needed only if the inode has no id yet. Without a registrar the table asks for
  /// the container as well, so that an open fails at once if the container cannot be opened.
  Result<Acquired> acquire(std::uint64_t ino, bool wanted, Container* container) {
    const auto descriptor = container == nullptr ? std::nullopt : container->descriptor();
    return acquire(ino, wanted && (container == nullptr || descriptor), descriptor);
  }

  /// The same for a file that may be no container. nullopt: no descriptor is at hand.
  Result<Acquired> acquire(std::uint64_t ino, bool wanted, std::optional<int> descriptor)
      EFS_EXCLUDES(mutex_);
  /// Counts an open on the daemon's path of an inode that nobody has open, though passthrough is
  /// allowed. If the inode has an id meanwhile, counts as acquire() does. Until all are closed, the
  /// inode's other opens take the daemon's path as well.
  Result<Acquired> acquire_unregistered(std::uint64_t ino) EFS_EXCLUDES(mutex_);
  /// Returns the inodes of `ino`'s registration batch that the table does not contain. A batch is
  /// most_at_once neighbouring inode numbers: files that were imported or made together are often
  /// opened together. Returns none if the table has no room for a whole batch.
  std::vector<std::uint64_t> rest_of_batch(std::uint64_t ino) const EFS_EXCLUDES(mutex_);
  /// Registers those of `files` (at most most_at_once) that the table does not contain yet, with
  /// one call. Returns their number. They count as idle until acquire(). The caller must check
  /// afterwards whether a file was removed meanwhile, and drop() it.
  std::size_t register_batch(std::span<const fs::ContainerPool::Ready> files);
  void release(std::uint64_t ino);
  /// Closes the registration of an inode that is not open. Returns when the registration has ended.
  void let_go(std::uint64_t ino);
  /// Returns when every dropped registration has ended. The kernel then no longer holds their
  /// space.
  void close_dropped();
  /// The inode was removed. Its container held this many bytes.
  void drop(std::uint64_t ino, std::uint64_t bytes);
  /// True if the daemon does the I/O of this inode's opens.
  bool keeps_to_daemon(std::uint64_t ino) const EFS_EXCLUDES(mutex_);

  /// True if the file is open, and the kernel passes its I/O through.
  bool passes_through(std::uint64_t ino) const EFS_EXCLUDES(mutex_);

  bool enabled() const { return registrar_ != nullptr && !refused_; }

  /// Call before the first open.
  void disable() { registrar_ = nullptr; }

  /// Stops further registrations, because the kernel rejects every container. Any time, any thread.
  void refuse() { refused_ = true; }

  bool due() const { return waiting_.load(std::memory_order_relaxed); }

  /// Closes all pending ids.
  void run();

 private:
  struct Slot {
    int id = 0;
    std::uint64_t opens = 0;
    bool idle = false;                              // not open
    std::list<std::uint64_t>::iterator place = {};  // in idle_, else in open_
  };

  using Ids = std::vector<int>;

  /// Adds a new inode, not idle. Throws std::bad_alloc. The functions that a release or a removal
  /// calls do not throw.
  Slot& add(std::uint64_t ino, int id, std::uint64_t opens) EFS_REQUIRES(mutex_);
  /// Closes the id again if memory is exhausted.
  void add_idle(std::uint64_t ino, int id) EFS_REQUIRES(mutex_);
  void make_idle(Slot& slot) EFS_REQUIRES(mutex_);
  void make_used(Slot& slot) EFS_REQUIRES(mutex_);
  void erase(std::unordered_map<std::uint64_t, Slot>::iterator it) EFS_REQUIRES(mutex_);
  /// Ends the registration of an inode that is not open, if there is one.
  void revoke_unopened(Slot& slot) EFS_REQUIRES(mutex_);
  int register_now(std::uint64_t ino, int descriptor) EFS_REQUIRES(mutex_);
  bool has_others_of_row(std::uint64_t ino) const EFS_REQUIRES(mutex_);

  bool deserves_batch(std::uint64_t ino) const EFS_REQUIRES(mutex_) {
    return has_room_for_row() && (is_full() ? full_.has_neighbour(ino) : has_others_of_row(ino));
  }

  /// A batch closes ids that are idle, but none of files that are open. After a takeover it is not
  /// known which are open.
  bool has_room_for_row() const EFS_REQUIRES(mutex_) {
    return open_.size() + BackingRegistrar::most_at_once <= idle_limit_;
  }

  bool is_full() const EFS_REQUIRES(mutex_) {
    return idle_.size() + BackingRegistrar::most_at_once > idle_limit_;
  }

  void close_later(int id, std::uint64_t bytes) EFS_REQUIRES(mutex_);
  /// Tells the registrar of the pending ids, if all are wanted or there are many.
  void close_pending(bool all) EFS_REQUIRES(mutex_);
  void close(const Ids& ids);

  BackingRegistrar* registrar_;
  const IdleLimit most_idle_now_;
  std::atomic<bool> refused_{false};
  // rank 35; held while an inode is registered, so that two opens do not register it twice
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Slot> slots_ EFS_GUARDED_BY(mutex_);
  // inodes of idle slots, the last used first
  std::list<std::uint64_t> idle_ EFS_GUARDED_BY(mutex_);
  // inodes of the other slots; make_idle() moves their list nodes without allocating
  std::list<std::uint64_t> open_ EFS_GUARDED_BY(mutex_);
  std::size_t idle_limit_ EFS_GUARDED_BY(mutex_);
  unsigned since_limit_ EFS_GUARDED_BY(mutex_) = 0;  // ids that became idle since it was renewed
  FullTablePolicy full_ EFS_GUARDED_BY(mutex_);
  Ids closing_ EFS_GUARDED_BY(mutex_);  // at most most_at_once
  std::uint64_t closing_bytes_ EFS_GUARDED_BY(mutex_) = 0;
  int last_refusal_ EFS_GUARDED_BY(mutex_) = 0;  // errno of the last logged refusal
  std::atomic<bool> waiting_{false};             // closing_ is not empty
};

}  // namespace efs::fuse
