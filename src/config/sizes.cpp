// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <string>

#include "config/load.hpp"

namespace efs::config {
namespace {

struct Prefix {
  char letter;
  std::uint64_t decimal, binary;
};

constexpr std::array prefixes{Prefix{'k', 1'000, 1ull << 10},
                              Prefix{'m', 1'000'000, 1ull << 20},
                              Prefix{'g', 1'000'000'000, 1ull << 30},
                              Prefix{'t', 1'000'000'000'000, 1ull << 40},
                              Prefix{'p', 1'000'000'000'000'000, 1ull << 50},
                              Prefix{'e', 1'000'000'000'000'000'000, 1ull << 60}};

struct Unit {
  std::string_view name;
  std::uint64_t seconds;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

// No-break spaces, which documents place between a number and its unit.
constexpr std::array<std::string_view, 3> odd_blanks{"\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x89"};

std::string_view trim(std::string_view text) {
  const auto first = [&] {
    return std::ranges::find_if(odd_blanks,
                                [&](std::string_view blank) { return text.starts_with(blank); });
  };
  while (!text.empty()) {
    if (is_blank(text.front())) {
      text.remove_prefix(1);
    } else if (const auto blank = first(); blank != odd_blanks.end()) {
      text.remove_prefix(blank->size());
    } else {
      break;
    }
  }
  while (!text.empty() && is_blank(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

// Consumes the digits at the front of `text`.
std::string_view take_digits(std::string_view& text) {
  const auto end = std::ranges::find_if_not(text, is_digit);
  const auto digits = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(digits.size());
  return digits;
}

// Case does not matter. Single letters are decimal, as in the ancestor.
std::optional<std::uint64_t> unit_bytes(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (lower.empty() || lower == "b") {
    return 1;
  }
  const auto* prefix = std::ranges::find(prefixes, lower.front(), &Prefix::letter);
  const auto rest = std::string_view(lower).substr(1);
  if (prefix == prefixes.end() || (!rest.empty() && rest != "b" && rest != "ib")) {
    return std::nullopt;
  }
  return rest == "ib" ? prefix->binary : prefix->decimal;
}

// Returns WHOLE.FRACTION units in bytes; nullopt above 64 bits. The arguments are digits. Uses
// integers only: a double cannot represent every 64-bit size.
std::optional<std::uint64_t> bytes_of(std::string_view whole, std::string_view fraction,
                                      std::uint64_t unit) {
  __extension__ using Wide = unsigned __int128;  // not ISO C++, hence __extension__
  constexpr Wide largest = std::numeric_limits<std::uint64_t>::max();
  Wide value = 0;
  for (const char digit : whole) {
    value = value * 10 + static_cast<unsigned>(digit - '0');
    if (value > largest) {
      return std::nullopt;
    }
  }
  Wide numerator = 0, denominator = 1;
  for (const char digit : fraction) {
    numerator = numerator * 10 + static_cast<unsigned>(digit - '0');
    denominator *= 10;
  }
  value = value * unit + numerator * unit / denominator;
  return value > largest ? std::nullopt : std::optional(static_cast<std::uint64_t>(value));
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::size_t most_decimals = 15;  // keeps fraction * unit far below 2^128
  text = trim(text);
  const auto whole = take_digits(text);
  std::string_view fraction;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_digits(text);
    if (fraction.empty() || fraction.size() > most_decimals) {
      return std::nullopt;
    }
  }
  const auto unit = unit_bytes(trim(text));
  // half a byte is invalid
  if (whole.empty() || !unit || (!fraction.empty() && *unit == 1)) {
    return std::nullopt;
  }
  return bytes_of(whole, fraction, *unit);
}

std::optional<std::chrono::seconds> parse_time(std::string_view text) {
  static constexpr std::array units{Unit{"s", 1}, Unit{"min", 60}, Unit{"h", 3600},
                                    Unit{"d", 24 * 3600}};
  constexpr std::size_t most_digits = 9;
  text = trim(text);
  const auto digits = take_digits(text);
  const auto* unit = std::ranges::find(units, trim(text), &Unit::name);
  if (digits.empty() || digits.size() > most_digits || unit == units.end()) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return std::chrono::seconds(number * unit->seconds);
}

std::optional<std::uint64_t> parse_memory(std::string_view text) {
  text = trim(text);
  const bool bare = !text.empty() && is_digit(text.back());
  const bool letter = text.size() > 1 && std::string_view("KMGTPkmgtp").contains(text.back());
  return parse_size(std::string(text) + (bare ? "MiB" : letter ? "iB" : ""));
}

std::optional<std::uint64_t> parse_rate(std::string_view text) {
  text = trim(text);
  if (text.ends_with("/s")) {
    text.remove_suffix(2);
  }
  return parse_size(text);
}

}  // namespace efs::config
