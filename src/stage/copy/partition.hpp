#pragma once
// In which order pieces of work are begun whose neighbours are in one another's way.

#include <cstddef>
#include <vector>

namespace efs::stage {

/// All of `items`, so ordered that `ways` in a row come from as many stretches of it: who works
/// beside whom works far away.
template <typename Item>
std::vector<Item> partition(const std::vector<Item>& items, std::size_t ways) {
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
