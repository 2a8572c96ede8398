#pragma once
// What tells the stores of two instances apart.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace efs::store {

/// Drawn when a store is made. All zeros: not known, which contradicts none.
struct InstanceId {
  std::array<std::uint8_t, 16> bytes{};

  bool known() const { return *this != InstanceId{}; }

  bool contradicts(const InstanceId& other) const {
    return known() && other.known() && *this != other;
  }

  bool operator==(const InstanceId&) const = default;
};

Result<InstanceId> draw_instance_id();

/// 32 hexadecimal digits. What is no such text is an id that is not known.
std::string to_string(const InstanceId& id);
InstanceId instance_id_of(std::string_view text);

}  // namespace efs::store
