// SPDX-License-Identifier: BSD-3-Clause
#include "store/instance_id.hpp"

#include <sys/random.h>

#include <charconv>

namespace efs::store {

Result<InstanceId> draw_instance_id() {
  InstanceId id;
  if (::getrandom(id.bytes.data(), id.bytes.size(), 0) != static_cast<ssize_t>(id.bytes.size())) {
    return fail_errno("getrandom");
  }
  return id;
}

std::string to_string(const InstanceId& id) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const auto byte : id.bytes) {
    (text += digits[byte >> 4]) += digits[byte & 15];
  }
  return text;
}

InstanceId instance_id_of(std::string_view text) {
  InstanceId id;
  if (text.size() != 2 * id.bytes.size()) {
    return {};
  }
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    const char* digits = text.data() + 2 * i;
    if (const auto [end, problem] = std::from_chars(digits, digits + 2, id.bytes[i], 16);
        problem != std::errc{} || end != digits + 2) {
      return {};
    }
  }
  return id;
}

}  // namespace efs::store
