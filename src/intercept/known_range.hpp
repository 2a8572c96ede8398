// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The bytes of a file that a container holds for sure, as of an epoch (base/intercept_door.hpp):
// one range without a hole, inside the size. Only these are served from a mapping.

#include <cstdint>

namespace efs::intercept {

struct KnownRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  bool holds(std::uint64_t offset, std::uint64_t bytes) const {
    return offset >= begin && offset <= end && bytes <= end - offset;
  }

  /// The kernel has written or read these bytes as data. A run that does not touch the range
  /// replaces an empty one only.
  void add(std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t until = offset + bytes;
    if (begin == end) {
      begin = offset;
      end = until;
    } else if (offset <= end && until >= begin) {
      begin = offset < begin ? offset : begin;
      end = until > end ? until : end;
    }
  }
};

}  // namespace efs::intercept
