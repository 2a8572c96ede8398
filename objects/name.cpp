// SPDX-License-Identifier: BSD-3-Clause
#include "objects/name.hpp"

#include <limits.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "objects/efs_objects.h"

namespace efs::objects {

namespace {

constexpr std::string_view draft_prefix = "eo-";
constexpr std::string_view join_suffix = "-join.part";
constexpr std::string_view sums_suffix = "-sums.part";
constexpr std::string_view version_infix = "-eo-";
constexpr std::string_view damaged_infix = ".damaged-";
constexpr std::size_t token_digits = 16;
constexpr std::size_t mark_digits = 6;
constexpr std::size_t version_digits = 8;
constexpr std::size_t max_printed = 300;

bool is_digit(char byte) {
  return byte >= '0' && byte <= '9';
}

bool is_hexadecimal(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f');
}

/// Returns the length of a UTF-8 character by its first byte; 0 for a byte that begins none.
std::size_t length_by(unsigned char lead) {
  if (lead < 0x80) {
    return 1;
  }
  return lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
}

/// Returns the length of the UTF-8 character at the head of the text; 0 for bytes that are none.
std::size_t utf8_length(std::string_view text) {
  constexpr std::uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = length_by(lead);
  if (length < 2 || text.size() < length) {
    return length == 1 ? 1 : 0;
  }
  std::uint32_t code = lead & (0x7fU >> length);
  for (const char next : text.substr(1, length - 1)) {
    const auto byte = static_cast<unsigned char>(next);
    if ((byte & 0xc0U) != 0x80) {
      return 0;
    }
    code = code << 6U | (byte & 0x3fU);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < lowest[length] || surrogate || code > 0x10ffff ? 0 : length;
}

bool is_control(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  return first < 0x20 || first == 0x7f;
}

/// Returns the reason why a component is refused; NULL if it is good.
const char* fault_of(std::string_view component) {
  if (component.empty()) {
    return "a component of the name is empty";
  }
  if (component == "." || component == "..") {
    return "a component of the name is . or ..";
  }
  if (component.ends_with(draft_suffix) || component.ends_with(object_suffix) ||
      component.ends_with(bundle_suffix)) {
    return "a component of the name ends in .part, .npy or .npz";
  }
  if (component.size() + object_suffix.size() > NAME_MAX) {
    return "a component of the name is longer than 251 bytes";
  }
  if (component.size() >= version_digits && std::ranges::all_of(component, is_digit)) {
    return "a component of eight or more digits is the directory of a version";
  }
  if (component.find(damaged_infix) != std::string_view::npos &&
      version_of(component.substr(0, component.find(damaged_infix)))) {
    return "a component is the directory of a damaged version";
  }
  for (std::size_t length = 0; !component.empty(); component.remove_prefix(length)) {
    length = utf8_length(component);
    if (length == 0) {
      return "the name is not UTF-8";
    }
    if (is_control(component)) {
      return "the name has a control character";
    }
  }
  return nullptr;
}

}  // namespace

Status check_name(std::string_view name) {
  constexpr const char* remedy = "Choose a name such as run/temperature";
  if (name.empty()) {
    return fail(EINVAL, "the name is empty", remedy);
  }
  if (name.size() >= PATH_MAX - NAME_MAX) {
    return fail(EINVAL, "the name is longer than 3840 bytes", remedy);
  }
  if (std::ranges::count(name, '/') >= max_depth) {
    return fail(EINVAL, "the name has more than 32 components", remedy);
  }
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    if (const char* fault = fault_of(name.substr(begin, end - begin))) {
      return fail(EINVAL, fault, remedy);
    }
    begin = end + 1;
  }
  return {};
}

bool is_component(std::string_view component) {
  return component.find('/') == std::string_view::npos && fault_of(component) == nullptr;
}

std::string printable(std::string_view name) {
  std::string text;
  while (!name.empty() && text.size() < max_printed) {
    const std::size_t length = utf8_length(name);
    if (length == 0 || is_control(name)) {
      text += '?';
    } else {
      text += name.substr(0, length);
    }
    name.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return name.empty() ? text : text + "...";
}

std::optional<std::uint64_t> version_of(std::string_view component) {
  if (component.size() < version_digits || !std::ranges::all_of(component, is_digit)) {
    return std::nullopt;
  }
  std::uint64_t n = 0;
  for (const char digit : component) {
    const auto value = static_cast<std::uint64_t>(digit - '0');
    if (n > (UINT64_MAX - value) / 10) {
      return std::nullopt;
    }
    n = n * 10 + value;
  }
  return n != EO_LATEST && version_directory(n) == component ? std::optional(n) : std::nullopt;
}

std::string version_directory(std::uint64_t n) {
  const std::string digits = std::to_string(n);
  return std::string(version_digits - std::min(version_digits, digits.size()), '0') + digits;
}

std::string node_mark() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  boot.resize(mark_digits, '0');
  return boot;
}

Result<std::string> new_token() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR) {
      return fail(errno);
    }
  }
  char token[32];
  std::snprintf(token, sizeof token, "%010llx", static_cast<unsigned long long>(number >> 24U));
  return node_mark() + token;
}

bool is_token(std::string_view text) {
  return text.size() == token_digits && std::ranges::all_of(text, is_hexadecimal);
}

std::string_view token_of(std::string_view name) {
  return name.size() < draft_prefix.size() ? std::string_view()
                                           : name.substr(draft_prefix.size(), token_digits);
}

std::string draft_name(std::string_view token) {
  return std::string(draft_prefix) + std::string(token) + std::string(draft_suffix);
}

Result<std::string> new_draft_name() {
  const auto token = new_token();
  return token ? Result<std::string>(draft_name(*token)) : std::unexpected(token.error());
}

bool is_draft(std::string_view component) {
  return is_token(token_of(component)) && component == draft_name(token_of(component));
}

std::string join_name(std::string_view token) {
  return std::string(draft_prefix) + std::string(token) + std::string(join_suffix);
}

bool is_join_file(std::string_view component) {
  return is_token(token_of(component)) && component == join_name(token_of(component));
}

std::string sums_name(std::string_view token) {
  return std::string(draft_prefix) + std::string(token) + std::string(sums_suffix);
}

bool is_sums_file(std::string_view component) {
  return is_token(token_of(component)) && component == sums_name(token_of(component));
}

std::string damaged_version_name(std::uint64_t n, std::string_view token) {
  return version_directory(n) + std::string(damaged_infix) + std::string(token);
}

std::string version_draft_name(std::uint64_t n, std::string_view token) {
  return version_directory(n) + std::string(version_infix) +
         std::string(token.substr(0, mark_digits)) + std::string(draft_suffix);
}

bool is_version_draft(std::string_view component) {
  const auto infix = component.find(version_infix);
  const auto n = version_of(component.substr(0, infix));
  if (infix == std::string_view::npos || !n) {
    return false;
  }
  const auto mark = component.substr(infix + version_infix.size(), mark_digits);
  return mark.size() == mark_digits && std::ranges::all_of(mark, is_hexadecimal) &&
         component == version_draft_name(*n, mark);
}

bool is_of_this_node(std::string_view draft) {
  const auto begin = draft.find(draft_prefix);
  return begin != std::string_view::npos &&
         draft.substr(begin + draft_prefix.size(), mark_digits) == node_mark();
}

}  // namespace efs::objects
