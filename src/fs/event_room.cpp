// SPDX-License-Identifier: BSD-3-Clause
#include "fs/event_room.hpp"

namespace efs::fs {

std::uint64_t EventRoom::wanted_for(std::uint64_t capacity) {
  constexpr std::uint64_t least = 256u << 10, most = 16u << 20, share = 4096;
  return std::clamp<std::uint64_t>(capacity / share, least, most);
}

void EventRoom::reserve(store::Journal& journal, std::uint64_t removals, std::uint64_t wanted) {
  wanted_ = wanted + of_start;
  while (wanted >= of_start && !journal.set_reserve(removals + 2 * of_start + wanted)) {
    wanted /= 2;
  }
  bytes_ = wanted >= of_start ? wanted + of_start : 0;
  (void)journal.set_reserve(removals + bytes_);
}

void EventRoom::restore(store::Journal& journal, std::uint64_t removals) {
  if (journal.set_reserve(removals + wanted_)) {
    bytes_ = wanted_;
  } else {
    (void)journal.set_reserve(removals + bytes_);
  }
}

}  // namespace efs::fs
