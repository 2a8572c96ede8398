// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace efs::fs {

/// Frees room in a full buffer, by means that fs does not know.
class RoomMaker {
 public:
  RoomMaker() = default;
  virtual ~RoomMaker() = default;
  RoomMaker(const RoomMaker&) = delete;
  RoomMaker& operator=(const RoomMaker&) = delete;

  /// Called with no lock held by threads that serve requests. Returns true if so many bytes, or at
  /// least some, may be free now. Returns after a bounded time.
  virtual bool make_room(std::uint64_t bytes) noexcept = 0;
  /// The same for programs that write without a word: frees what is missing to the reserve, if it
  /// can do so now.
  virtual void keep_reserve() noexcept = 0;
};

}  // namespace efs::fs
