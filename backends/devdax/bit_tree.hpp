// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A set of small numbers as a tree of bits.

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace efs::devdax {

/// A set of numbers below a fixed bound. Every operation takes a step per level; four levels hold
/// 16 million numbers. Not thread-safe. Only the constructor allocates.
class BitTree {
 public:
  explicit BitTree(std::uint64_t bound) {
    do {
      bound = (bound + 63) / 64;
      levels_.emplace_back(bound);
    } while (bound > 1);
  }

  bool contains(std::uint64_t number) const {
    return (levels_[0][number / 64] >> (number % 64) & 1) != 0;
  }

  void insert(std::uint64_t number) {
    for (auto& level : levels_) {
      level[number / 64] |= std::uint64_t{1} << (number % 64);
      number /= 64;
    }
  }

  void erase(std::uint64_t number) {
    for (auto& level : levels_) {
      level[number / 64] &= ~(std::uint64_t{1} << (number % 64));
      if (level[number / 64] != 0) {
        return;
      }
      number /= 64;
    }
  }

  /// The smallest member that is not below `from`.
  std::optional<std::uint64_t> next(std::uint64_t from) const {
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      const auto& words = levels_[level];
      if (from / 64 >= words.size()) {
        return std::nullopt;
      }
      if (const std::uint64_t rest = words[from / 64] >> (from % 64); rest != 0) {
        return first_below(level, from + static_cast<unsigned>(std::countr_zero(rest)));
      }
      from = from / 64 + 1;
    }
    return std::nullopt;
  }

 private:
  std::uint64_t first_below(std::size_t level, std::uint64_t at) const {
    while (level-- > 0) {
      at = at * 64 + static_cast<unsigned>(std::countr_zero(levels_[level][at]));
    }
    return at;
  }

  std::vector<std::vector<std::uint64_t>> levels_;  // the numbers, and the words that are not zero
};

}  // namespace efs::devdax
