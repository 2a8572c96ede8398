// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks the extents of a namespace: no two files may have the same bytes of a device.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fs/namespace.hpp"

namespace efs::image {

/// Two inodes that have the same byte of a device.
struct SharedByte {
  std::uint64_t ino = 0, other = 0;
  std::uint64_t device = 0;  // the first such byte: its offset on the device

  bool operator==(const SharedByte&) const = default;
};

/// `place_of`: the backend of the inode's container, as a number; nullopt: it has no container, and
/// its extents are left out.
std::vector<SharedByte> find_shared_bytes(
    const fs::Namespace& names,
    const std::function<std::optional<unsigned>(std::uint64_t ino)>& place_of);

}  // namespace efs::image
