// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The order in which threads begin pieces of work whose neighbours contend with each other.

#include <cstddef>
#include <vector>

namespace efs::stage {

/// Returns all of `items` in an order in which `ways` consecutive items come from `ways` different
/// stretches of the input. Concurrent threads then work far apart.
template <typename Item>
std::vector<Item> strided_order(const std::vector<Item>& items, std::size_t ways) {
  std::vector<Item> all;
  all.reserve(items.size());
  const std::size_t stride = (items.size() + ways - 1) / ways;
  for (std::size_t first = 0; first < stride; ++first) {
    for (std::size_t at = first; at < items.size(); at += stride) {
      all.push_back(items[at]);
    }
  }
  return all;
}

}  // namespace efs::stage
