// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "config/job_config.hpp"

// Patterns are matched component by component. Both levels (components with **, characters with *)
// use the same method: match greedily, and at a mismatch return to the last star only. Returning to
// earlier stars never helps, so the time is at most the product of the lengths, for any job file.

namespace efs::config {
namespace {

// Returns the first character of `text`, which must not be empty: a UTF-8 sequence, or one byte of
// invalid UTF-8.
std::string_view front_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (length > text.size()) {
    return text.substr(0, 1);
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      return text.substr(0, 1);
    }
  }
  return text.substr(0, length);
}

struct CharacterClass {
  std::string_view name;
  int (*holds)(int);
};

constexpr std::array character_classes{
    CharacterClass{"alpha", std::isalpha},   CharacterClass{"digit", std::isdigit},
    CharacterClass{"alnum", std::isalnum},   CharacterClass{"upper", std::isupper},
    CharacterClass{"lower", std::islower},   CharacterClass{"space", std::isspace},
    CharacterClass{"blank", std::isblank},   CharacterClass{"punct", std::ispunct},
    CharacterClass{"xdigit", std::isxdigit}, CharacterClass{"cntrl", std::iscntrl},
    CharacterClass{"graph", std::isgraph},   CharacterClass{"print", std::isprint}};

// [:alpha:] and the other classes, for ASCII only: the daemon's locale must not affect staging.
bool in_named_class(std::string_view name, std::string_view character) {
  if (character.size() != 1 || static_cast<unsigned char>(character[0]) > 0x7F) {
    return false;
  }
  const auto* found = std::ranges::find(character_classes, name, &CharacterClass::name);
  return found != character_classes.end() &&
         found->holds(static_cast<unsigned char>(character[0])) != 0;
}

struct BracketMatch {
  bool matches = false;
  std::string_view rest;  // the pattern after the closing bracket
};

// Consumes one member of a bracket expression from the front of `set`: a character, perhaps
// escaped.
std::string_view take_member(std::string_view& set) {
  if (set.size() > 1 && set.front() == '\\') {
    set.remove_prefix(1);
  }
  const auto member = front_character(set);
  set.remove_prefix(member.size());
  return member;
}

// Consumes a class, a range or a character from the front of `set`. Returns whether it matches.
bool take_item(std::string_view& set, std::string_view character) {
  if (const auto end = set.find(":]", 2); set.starts_with("[:") && end != set.npos) {
    const auto name = set.substr(2, end - 2);
    set.remove_prefix(end + 2);
    return in_named_class(name, character);
  }
  const auto low = take_member(set);
  auto high = low;
  if (set.size() > 1 && set[0] == '-' && set[1] != ']') {
    set.remove_prefix(1);
    high = take_member(set);
  }
  return low <= character && character <= high;
}

// `set` begins after the '['. Returns nullopt if no bracket closes it; the '[' is then literal.
// UTF-8 sequences compare bytewise in the order of their code points, so ranges need no decoding.
std::optional<BracketMatch> match_bracket(std::string_view set, std::string_view character) {
  const bool negated = set.starts_with('!') || set.starts_with('^');
  if (negated) {
    set.remove_prefix(1);
  }
  bool found = false;
  for (bool first = true; !set.empty(); first = false) {
    if (set.front() == ']' && !first) {
      return BracketMatch{found != negated, set.substr(1)};
    }
    found = take_item(set, character) || found;
  }
  return std::nullopt;
}

// Matches one pattern element (no star) with one character. Returns the rest of the pattern, or
// nullopt if it does not match.
std::optional<std::string_view> match_character(std::string_view pattern,
                                                std::string_view character) {
  if (pattern.front() == '?') {
    return pattern.substr(1);
  }
  if (pattern.front() == '[') {
    if (const auto bracket = match_bracket(pattern.substr(1), character)) {
      return bracket->matches ? std::optional(bracket->rest) : std::nullopt;
    }
  }
  if (pattern.front() == '\\' && pattern.size() > 1) {
    pattern.remove_prefix(1);
  }
  if (!pattern.starts_with(character)) {
    return std::nullopt;
  }
  return pattern.substr(character.size());
}

bool match_component(std::string_view pattern, std::string_view name) {
  // glob(7): only an explicit period matches a leading period.
  if (name.starts_with('.') && !pattern.starts_with('.') && !pattern.starts_with("\\.")) {
    return false;
  }
  std::optional<std::string_view> star;  // the pattern after the last star
  // where to continue in the name when that star matches one more character
  std::string_view retry;
  while (!name.empty() || !pattern.empty()) {
    if (pattern.starts_with('*')) {
      pattern.remove_prefix(1);
      star = pattern;
      retry = name;
      continue;
    }
    if (!name.empty() && !pattern.empty()) {
      const auto character = front_character(name);
      if (const auto rest = match_character(pattern, character)) {
        pattern = *rest;
        name.remove_prefix(character.size());
        continue;
      }
    }
    if (!star || retry.empty()) {
      return false;
    }
    retry.remove_prefix(front_character(retry).size());
    name = retry;
    pattern = *star;
  }
  return true;
}

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> components;
  while (!path.empty()) {
    const auto slash = std::min(path.find('/'), path.size());
    if (slash > 0) {
      components.push_back(path.substr(0, slash));
    }
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return components;
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view path) {
  const auto patterns = split(pattern), names = split(path);
  std::size_t p = 0, n = 0;
  std::optional<std::size_t> star;  // the pattern component after the last **
  std::size_t retry = 0;
  while (n < names.size() || p < patterns.size()) {
    if (p < patterns.size() && patterns[p] == "**") {
      star = ++p;
      retry = n;
    } else if (p < patterns.size() && n < names.size() && match_component(patterns[p], names[n])) {
      ++p;
      ++n;
    } else if (star && retry < names.size()) {
      p = *star;
      n = ++retry;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace efs::config
