// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A pool of empty containers that creates use. A record (UsedInodes) reserves their inode numbers,
// which are never used otherwise. Filesystem::fill_pool() fills a low pool, on another thread
// than the creates if there is one. If the pool is empty a create makes its own container.
//
// When the worker dies, the store has up to `most` empty containers without a file record, with
// numbers below the namespace's next one. Every recovery removes them (fs/recovery.cpp).

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/backend.hpp"
#include "base/mutex.hpp"

namespace efs::fs {

/// Thread-safe. Independent of the backend and the journal.
class ContainerPool {
 public:
  ContainerPool() { ready_.reserve(2 * most); }  // put_back() must not allocate

  struct Ready {
    std::uint64_t ino = 0;
    std::shared_ptr<Container> container;
    bool ahead = false;  // from the pool: put_back() it if it was not used
    // its attributes, if the record has its times (is_in_record()): they stay as they are until its
    // use
    std::optional<struct stat> unused = {};
  };

  static constexpr std::size_t largest_batch = 64;
  static constexpr std::size_t most = largest_batch + largest_batch / 2;
  /// After a failed fill the pool skips so many creates, so that a full store is not tried at every
  /// create.
  static constexpr unsigned pause_after_failure = 64;

  /// Takes a container. nullopt if the pool is empty.
  std::optional<Ready> take();
  /// Returns an unused container to the pool.
  void put_back(Ready ready);

  /// True if begin_fill() would return more than 0. Takes no lock; may be out of date.
  bool is_low() const { return low_.load(std::memory_order_relaxed); }

  /// Call it after the reply to a create. Returns how many containers to make; 0: none. Otherwise
  /// the caller must call end_fill() with the new containers; until then other callers get 0.
  /// Batches grow with the demand.
  std::size_t begin_fill();
  /// `made` may have fewer containers than begin_fill() returned.
  void end_fill(std::vector<Ready> made);
  /// Returns all containers for removal. The pool accepts no more.
  std::vector<Ready> close();

 private:
  void look_whether_low() EFS_REQUIRES(mutex_);

  Mutex mutex_;  // rank 33
  std::vector<Ready> ready_ EFS_GUARDED_BY(mutex_);
  std::size_t batch_ EFS_GUARDED_BY(mutex_) = 4;  // size of the next fill
  std::size_t asked_ EFS_GUARDED_BY(mutex_) = 0;  // size of the running fill; 0: none
  unsigned pause_ EFS_GUARDED_BY(mutex_) = 0;
  bool closed_ EFS_GUARDED_BY(mutex_) = false;
  std::atomic<bool> low_{true};
};

}  // namespace efs::fs
