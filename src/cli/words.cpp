// SPDX-License-Identifier: BSD-3-Clause
#include "cli/words.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace efs::cli {
namespace {

std::string shown(std::string_view word) {
  return "'" + escaped(word) + "'";
}

}  // namespace

std::string refusal_of(std::span<const std::string> words,
                       std::span<const std::string_view> verbs) {
  if (words.empty()) {
    return "";
  }
  const std::string& verb = words.front();
  if (!verb.starts_with('-') && std::ranges::find(verbs, verb) == verbs.end()) {
    const auto near = nearest(verb, verbs);
    return "unknown command " + shown(verb) + odd_note(verb) +
           (near.empty() ? ": efs --help lists the commands"
                         : ": did you mean " + std::string(near) + "?");
  }
  for (const auto& word : words) {
    if (word == "--") {
      return "";
    }
    const auto odd = find_odd(word);
    if (!odd || odd->at != 0) {
      continue;
    }
    return shown(word) + " begins with " + odd->name +
           ": type a hyphen (-) before an option, and ./ before a path of that name";
  }
  return "";
}

std::string hint_for(std::span<const std::string> words,
                     std::span<const std::string_view> options) {
  for (const auto& word : words) {
    if (word == "--") {
      break;
    }
    if (const auto note = odd_note(word); !note.empty()) {
      return "; " + shown(word) + note;
    }
    const std::string option = word.substr(0, word.find('='));
    if (!option.starts_with("--") || std::ranges::find(options, option) != options.end()) {
      continue;
    }
    if (const auto near = nearest(option, options); !near.empty()) {
      return "; did you mean " + std::string(near) + "?";
    }
  }
  return "";
}

}  // namespace efs::cli
