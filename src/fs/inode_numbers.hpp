// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace efs::fs {

/// Inode numbers that a record of the journal has reserved and no file has yet: [next, end).
struct InodeNumbers {
  std::uint64_t next = 0, end = 0;

  bool empty() const { return next == end; }
};

}  // namespace efs::fs
