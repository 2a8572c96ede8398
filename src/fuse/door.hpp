// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The door of a mount (base/intercept_door.hpp) on the side of the session: its attributes, its
// clients, and how a new epoch reaches clients whose pages of the door are the kernel's own.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "base/door_memory.hpp"
#include "base/intercept_door.hpp"
#include "base/mutex.hpp"
#include "fs/filesystem.hpp"
#include "fuse/door_clients.hpp"

namespace efs::fuse {

struct Connection;

/// Brings epochs into the kernel's pages of the door, where the kernel does not pass the door
/// through to its memory. The kernel locks a page for that, and a thread that serves may be needed
/// to answer the READ that has it locked. So a thread of its own does it, and then sends the reply
/// that must not come before. Thread-safe.
class DoorPages {
 public:
  using Reply = std::move_only_function<void()>;

  /// Both must outlive this object. `inherited`: an earlier worker may have given the door away;
  /// all epochs are stored first.
  DoorPages(Connection& connection, const DoorMemory& memory, bool inherited);

  /// Sends the replies that are left.
  ~DoorPages();
  DoorPages(const DoorPages&) = delete;
  DoorPages& operator=(const DoorPages&) = delete;

  /// Stores the epoch of `ino`, then calls `reply` on another thread, or on this one if the system
  /// refuses a thread. Throws std::bad_alloc.
  void store_then(std::uint64_t ino, Reply reply);

 private:
  struct Work {
    std::uint64_t ino = 0;  // 0: all epochs
    Reply reply;
  };

  void begin() EFS_REQUIRES(mutex_);
  void serve() noexcept;
  void carry_out(Work& work) noexcept;
  void store(std::uint64_t ino);
  void send(std::size_t offset, void* bytes, std::size_t size);

  Connection& connection_;
  const DoorMemory& memory_;
  Mutex mutex_;  // rank 90 (leaf)
  Condition wake_;
  std::deque<Work> queue_ EFS_GUARDED_BY(mutex_);
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  bool refused_ EFS_GUARDED_BY(mutex_) = false;  // the system has refused a thread
  std::jthread thread_ EFS_GUARDED_BY(mutex_);
};

/// Thread-safe.
class Door {
 public:
  /// `memory`: null: the mount has no door. `totals`: null: its own. Both must outlive this object.
  Door(DoorMemory* memory, DoorTotals* totals)
      : memory_(memory), totals_(totals != nullptr ? *totals : own_totals_), clients_(totals_) {}

  Door() : Door(nullptr, nullptr) {}

  bool exists() const { return memory_ != nullptr; }

  /// True if this name, in any directory, is the door.
  bool is_called(std::string_view name) const { return exists() && name == door_name; }

  /// Its attributes: a regular file of the job's user, which anybody may read.
  static fs::Entry entry();

  /// The door must exist.
  const DoorMemory& memory() const { return *memory_; }

  DoorClients& clients() { return clients_; }

  const DoorClients& clients() const { return clients_; }

  const DoorTotals& totals() const { return totals_; }

  /// Call before the first request. `resumes`: the connection had an earlier worker. Adds one to
  /// every epoch then.
  void begin(Connection& connection, bool resumes);

  /// Call after the last request.
  void end() { pages_.reset(); }

  /// True if clients may read the door from the kernel's own pages: a reply that follows a change
  /// of an epoch must then be sent through pages().
  bool has_cached_pages(const Connection& connection) const;

  DoorPages& pages() { return *pages_; }

  /// The kernel does not know the door: no client of an earlier worker is left.
  void forgotten() { inherited_ = false; }

 private:
  DoorMemory* const memory_;
  DoorTotals own_totals_;
  DoorTotals& totals_;
  DoorClients clients_;
  std::atomic<bool> inherited_{false};  // an earlier worker may have clients
  std::unique_ptr<DoorPages> pages_;    // while requests are served
};

}  // namespace efs::fuse
