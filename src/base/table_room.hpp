// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Room in hash tables.

namespace efs {

/// Makes room for one more element of a hash table; doubles a full one. If it throws, nothing has
/// changed.
void make_room(auto& table) {
  if (static_cast<float>(table.size() + 1) >
      table.max_load_factor() * static_cast<float>(table.bucket_count())) {
    table.reserve(2 * (table.size() + 1));
  }
}

}  // namespace efs
