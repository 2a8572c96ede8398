// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Distinguishes the stores of different instances.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace efs::store {

/// A random id, drawn when a store is created. All zeros: unknown, which matches any id.
struct InstanceId {
  std::array<std::uint8_t, 16> bytes{};

  bool known() const { return *this != InstanceId{}; }

  bool contradicts(const InstanceId& other) const {
    return known() && other.known() && *this != other;
  }

  bool operator==(const InstanceId&) const = default;
};

Result<InstanceId> draw_instance_id();

/// to_string() writes 32 hexadecimal digits. instance_id_of() returns the unknown id for any other
/// text.
std::string to_string(const InstanceId& id);
InstanceId instance_id_of(std::string_view text);

}  // namespace efs::store
