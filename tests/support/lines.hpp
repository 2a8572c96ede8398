// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A set of lines of a file. Sets are large and dense, so each line is a bit.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace efs::test {

class Lines {
 public:
  void insert(std::uint64_t line) {
    if (line / 64 >= words_.size()) {
      words_.resize(line / 64 + 1);
    }
    words_[line / 64] |= bit(line);
  }

  void erase_from(std::uint64_t line) {
    if (line / 64 >= words_.size()) {
      return;
    }
    words_[line / 64] &= bit(line) - 1;
    words_.resize(line / 64 + 1);
  }

  void clear() { words_.clear(); }

  /// Calls `visit(line)` for each line, in order, from `first` on.
  template <typename Visit>
  void each(Visit visit, std::uint64_t first = 0) const {
    for (std::uint64_t at = first / 64; at < words_.size(); ++at) {
      for (std::uint64_t left = at == first / 64 ? words_[at] & ~(bit(first) - 1) : words_[at];
           left != 0; left &= left - 1) {
        visit(at * 64 + static_cast<std::uint64_t>(std::countr_zero(left)));
      }
    }
  }

 private:
  static std::uint64_t bit(std::uint64_t line) { return std::uint64_t{1} << line % 64; }

  std::vector<std::uint64_t> words_;
};

}  // namespace efs::test
