// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Ranges of bytes of a device.

#include <cstdint>

namespace efs::devdax {

/// Bytes of the device.
struct DeviceRange {
  std::uint64_t offset = 0;  // on the device
  std::uint64_t length = 0;

  std::uint64_t end() const { return offset + length; }

  bool operator==(const DeviceRange&) const = default;
};

constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t to) {
  return value / to * to;
}

/// The result must not exceed 64 bits.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return round_down(value + to - 1, to);
}

}  // namespace efs::devdax
