// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/patience.hpp"

#include <algorithm>
#include <utility>

namespace efs::stage {
namespace {

constexpr Nanoseconds first_round = 5'000'000, longest_round = 500'000'000;

}  // namespace

bool Patience::wait(std::vector<std::string> held) {
  std::ranges::sort(held);
  if (held != held_) {
    held_ = std::move(held);
    end_ = pauses_.now() + longest;
    pause_ = first_round;
  }
  if (cancel_ || pauses_.now() >= end_) {
    return false;
  }
  // Jitter, so that hundreds of nodes do not retry at once.
  pause_until(pauses_.now() + jittered(pause_), cancel_, pauses_);
  pause_ = std::min(pause_ * 3 / 2, longest_round);
  return !cancel_;
}

}  // namespace efs::stage
