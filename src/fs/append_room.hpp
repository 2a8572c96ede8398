// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Takes room behind the end of files that programs append to, and gives it back.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backends/backend.hpp"
#include "base/result.hpp"
#include "fs/quiet_files.hpp"
#include "fs/room_ahead.hpp"
#include "store/medium.hpp"

namespace efs::fs {

/// Thread-safe. Call it with no lock held, except where a member says otherwise.
class AppendRoom {
 public:
  /// Borrows `files` and `backend`. `medium`: as for RoomAhead.
  AppendRoom(QuietFiles& files, Backend& backend, std::shared_ptr<store::Medium> medium)
      : files_(files), backend_(backend), rooms_(std::move(medium)) {}

  /// Reserves room behind the end of a file that is open for writing, at most `bytes`: see
  /// RoomAhead. Returns where it ends; EAGAIN: none is to be had.
  Result<std::uint64_t> take(std::uint64_t ino, std::uint64_t bytes);
  /// Call it after a close. Gives back the room of a file that no program can write to. Does not
  /// throw.
  void settle(std::uint64_t ino);
  /// Gives back the room of all files that no program can write to. Returns true if space was
  /// freed. Does not throw.
  bool give_back_all();
  /// At a start: gives back what an earlier process left. Any lock may be held. `is_file`: of an
  /// inode number.
  void give_back_left(const std::function<bool(std::uint64_t)>& is_file);

  /// At a takeover: RoomAhead::inherit().
  void inherit() { rooms_.inherit(); }

  /// RoomAhead::keep(). Locks of lower ranks may be held, here and below.
  void keep(std::uint64_t ino) { rooms_.keep(ino); }

  /// The file is removed.
  void drop(std::uint64_t ino) { rooms_.drop(ino); }

  /// True if the file may have more blocks than data.
  bool has(std::uint64_t ino) const { return rooms_.has(ino); }

 private:
  Result<std::uint64_t> reserve(std::uint64_t ino, MappedFile& content, const Space& space,
                                std::uint64_t bytes);
  /// Returns true if space was freed. `tries`: as for prove_no_writer(). Throws std::bad_alloc.
  bool give_back(std::uint64_t ino, int tries);
  /// The pages of the room that no program has written.
  static std::vector<Run> unused(Container& container, const RoomAhead::Room& room,
                                 std::uint64_t size);
  /// True if nothing is left to do.
  bool cut(std::uint64_t ino);

  QuietFiles& files_;
  Backend& backend_;
  RoomAhead rooms_;
  std::atomic_flag settling_;  // a thread waits in settle()
};

}  // namespace efs::fs
