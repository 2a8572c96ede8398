// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads a text from its head: the tokens that .npy headers and manifests share.

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace efs::objects {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  void blank() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t')) {
      rest_.remove_prefix(1);
    }
  }

  /// Removes the character after blanks. Returns false if another one is there.
  bool take(char wanted) {
    blank();
    if (rest_.empty() || rest_[0] != wanted) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }

  bool take(std::string_view word) {
    blank();
    if (!rest_.starts_with(word)) {
      return false;
    }
    rest_.remove_prefix(word.size());
    return true;
  }

  /// Removes a decimal number without leading zeros. NULL: none, or larger than 64 bits.
  std::optional<std::uint64_t> number() {
    blank();
    std::uint64_t value = 0;
    std::size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      const auto digit = static_cast<std::uint64_t>(rest_[digits] - '0');
      if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) {
        return std::nullopt;
      }
      value = value * 10 + digit;
    }
    if (digits == 0 || (digits > 1 && rest_[0] == '0')) {
      return std::nullopt;
    }
    rest_.remove_prefix(digits);
    return value;
  }

  std::string_view rest() const { return rest_; }

  void skip(std::size_t bytes) { rest_.remove_prefix(bytes); }

 private:
  std::string_view rest_;
};

}  // namespace efs::objects
