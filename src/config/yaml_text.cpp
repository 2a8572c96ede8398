// SPDX-License-Identifier: BSD-3-Clause
#include "config/yaml_text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

namespace efs::config {
namespace {

// YAML 1.1 and 1.2 read these words as other types.
constexpr std::array<std::string_view, 9> words_of_yaml{"null", "true", "false", "yes", "no",
                                                        "on",   "off",  "y",     "n"};

bool is_word_of_yaml(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::find(words_of_yaml, lower) != words_of_yaml.end();
}

bool is_plain(std::string_view text) {
  static constexpr std::string_view first =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._";
  static constexpr std::string_view others = "-+=%$";
  return !text.empty() && first.contains(text.front()) && std::ranges::all_of(text, [](char c) {
    return first.contains(c) || others.contains(c);
  }) && !is_word_of_yaml(text);
}

}  // namespace

std::string yaml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    char escaped[8];
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      std::snprintf(escaped, sizeof escaped, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    result += escaped;
  }
  return result + '"';
}

std::string yaml_value(std::string_view text) {
  return is_plain(text) ? std::string(text) : yaml_string(text);
}

}  // namespace efs::config
