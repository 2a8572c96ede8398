// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/leader_placement.hpp"

namespace efs::fuse {

std::optional<unsigned> LeaderPlacement::next(std::uint32_t caller) {
  if (caller != 0) {
    if (caller != caller_ || ++of_caller_ == valid) {
      caller_ = caller;
      of_caller_ = 0;
      if (const auto cpu = only_cpu_(caller); cpu != cpu_) {
        cpu_ = cpu;
        in_a_row_ = 0;
      }
    }
    if (in_a_row_ < enough) {
      ++in_a_row_;
    }
  }
  return in_a_row_ == enough ? cpu_ : std::nullopt;
}

}  // namespace efs::fuse
