#pragma once
// Containers made ahead, so that a create finds one: empty, under inode numbers that are reserved
// for them by a record (UsedInodes) and never used for anything else. Filled by
// Filesystem::fill_pool() when it is low, by whoever has just made a file and has answered for it;
// where the pool is empty a create makes its own container.
//
// What lies here when the daemon dies are containers that no record makes a file of, up to `most`,
// empty, with numbers below the namespace's next one: every recovery removes them
// (fs/recovery.cpp).

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/backend.hpp"
#include "base/mutex.hpp"

namespace efs::fs {

/// Thread-safe. Knows neither backend nor journal.
class ContainerPool {
 public:
  ContainerPool() { ready_.reserve(2 * most); }  // what comes back must need no memory

  struct Ready {
    std::uint64_t ino = 0;
    std::shared_ptr<Container> container;
    bool ahead = false;  // it is the pool's: put_back() it where it was not used
  };

  static constexpr std::size_t largest_batch = 32;
  static constexpr std::size_t most = largest_batch + largest_batch / 2;
  /// Takes without effect after a fill that failed: a full store is not asked at every create.
  static constexpr unsigned pause_after_failure = 64;

  /// With times of its making; nullopt: empty.
  std::optional<Ready> take();
  /// Takes back what was taken and not used.
  void put_back(Ready ready);
  /// A create was answered: is it time to fill, and with how many? 0: no. Else the caller must
  /// end_fill() with what it got; until then everybody else hears 0. Batches grow with the demand.
  std::size_t begin_fill();
  /// Fewer than begin_fill() said: some could not be made.
  void end_fill(std::vector<Ready> made);
  /// All that is there, for its removal; nothing is filled in any more.
  std::vector<Ready> close();

 private:
  Mutex mutex_;  // rank 33
  std::vector<Ready> ready_ EFS_GUARDED_BY(mutex_);
  std::size_t batch_ EFS_GUARDED_BY(mutex_) = 4;  // of the next fill
  std::size_t asked_ EFS_GUARDED_BY(mutex_) = 0;  // of the fill that is running; 0: none
  unsigned pause_ EFS_GUARDED_BY(mutex_) = 0;
  bool closed_ EFS_GUARDED_BY(mutex_) = false;
};

}  // namespace efs::fs
