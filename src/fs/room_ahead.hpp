// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Room behind the end of files that programs append to, so that an append finds its pages. How much
// is granted, and which files have some: a list beside the journal, so that a recovery can take
// back what a dead process left.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "store/medium.hpp"

namespace efs::fs {

/// Thread-safe. The list (most_files inode numbers, 0: free) is stored, not synced: it is for the
/// death of processes. After power loss a file may keep its room.
class RoomAhead {
 public:
  static constexpr std::uint64_t most = 2U << 20U, least = 64U << 10U;  // bytes of one file
  static constexpr std::uint64_t page = 4096;                           // bytes
  static constexpr std::size_t most_files = 512;

  /// The reserved bytes of a file. The file's end may have passed some of them.
  struct Room {
    std::uint64_t begin = 0, end = 0;
    bool operator==(const Room&) const = default;
  };

  /// The bytes to reserve: at most 2 MiB for a file, at most 5 % of the capacity for all of them
  /// (`held` now), and none while less than a quarter is available. 0: none.
  static std::uint64_t grant(const Space& space, std::uint64_t held, std::uint64_t wanted);

  /// `medium`: null: nothing is ever held.
  explicit RoomAhead(std::shared_ptr<store::Medium> medium) : medium_(std::move(medium)) {}

  /// The files of the list that an earlier process left.
  std::vector<std::uint64_t> left_over();
  /// Takes the list over as it is. Its files keep their room for the life of this process, because
  /// what programs have reserved in them is not known; it counts as none.
  void inherit();
  /// Takes a file off the list.
  void strike(std::uint64_t ino);

  /// Notes that a file gets this room, before it does. Replaces what the file had. False: nothing
  /// was noted, and the file must get none.
  bool hold(std::uint64_t ino, const Room& room);
  /// The file keeps its room for good: a program has reserved space, which may be within it.
  void keep(std::uint64_t ino);
  /// The file is removed.
  void drop(std::uint64_t ino);
  /// This room is given back; nothing happens if the file has another one by now.
  void drop(std::uint64_t ino, const Room& room);

  bool any() const { return files_now_ > 0; }

  /// True also of a file that keeps its room.
  bool has(std::uint64_t ino) const;
  /// The room of a file that it does not keep.
  std::optional<Room> of(std::uint64_t ino) const;
  /// The files whose room is to be given back. Throws std::bad_alloc.
  std::vector<std::uint64_t> files() const;

  /// Bytes of all files, those that the files have used since included.
  std::uint64_t held() const;

 private:
  static constexpr std::size_t no_slot = most_files;

  struct Held {
    Room room;
    bool stays = false;
    std::size_t slot = no_slot;  // in the list
  };

  bool open_list(bool make) EFS_REQUIRES(mutex_);
  void read_list() EFS_REQUIRES(mutex_);
  void forget(std::unordered_map<std::uint64_t, Held>::iterator held) EFS_REQUIRES(mutex_);
  void set_slot(std::size_t slot, std::uint64_t ino) EFS_REQUIRES(mutex_);
  std::size_t free_slot() const EFS_REQUIRES(mutex_);

  const std::shared_ptr<store::Medium> medium_;
  std::atomic<std::size_t> files_now_{0};
  mutable Mutex mutex_;  // rank 90 (leaf)
  std::unordered_map<std::uint64_t, Held> rooms_ EFS_GUARDED_BY(mutex_);
  std::array<std::uint64_t, most_files> slots_ EFS_GUARDED_BY(mutex_){};  // 0: free
  std::uint64_t held_ EFS_GUARDED_BY(mutex_) = 0;                         // bytes
  std::unique_ptr<store::MediumFile> list_ EFS_GUARDED_BY(mutex_);
  std::byte* window_ EFS_GUARDED_BY(mutex_) = nullptr;  // of the list
};

}  // namespace efs::fs
