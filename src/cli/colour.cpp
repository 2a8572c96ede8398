// SPDX-License-Identifier: BSD-3-Clause
#include "cli/colour.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace efs::cli {
namespace {

constexpr char escape = '\033';
constexpr std::string_view end_of_colour = "\033[m";

const char* begin_of(Tone tone) {
  switch (tone) {
    case Tone::plain: return "";
    case Tone::heading: return "\033[1m";
    case Tone::good: return "\033[32m";
    case Tone::warning: return "\033[33m";
    case Tone::bad: return "\033[31m";
  }
  return "";
}

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string painted_line(const std::string& line, bool colour) {
  const auto begin = line.find_first_not_of(' ');
  if (begin == 0) {
    return painted(line, Tone::heading, colour);
  }
  const auto colon = line.find(':');
  if (begin == line.npos || colon == line.npos || colon < begin) {
    return line;
  }
  return line.substr(0, begin) + painted(line.substr(begin, colon - begin), colour) +
         line.substr(colon);
}

}  // namespace

bool wants_colour(std::string_view choice) {
  if (choice != "auto") {
    return choice == "always";
  }
  const auto term = variable("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && !term.empty() && term != "dumb" &&
         variable("NO_COLOR").empty();
}

Tone tone_of(std::string_view word) {
  constexpr std::array good{"ok", "complete", "running", "kept", "staged-out"};
  constexpr std::array warning{"warning",    "partial",    "staging-in", "staging-out",
                               "unmounting", "recovering", "dropped",    "skipped"};
  constexpr std::array bad{"problem", "failed",  "conflict", "not-saved", "dead",
                           "silent",  "unsaved", "stopped",  "?",         "unreachable"};
  const auto is_in = [&](const auto& words) {
    return std::ranges::find(words, word) != words.end();
  };
  return is_in(good)      ? Tone::good
         : is_in(warning) ? Tone::warning
         : is_in(bad)     ? Tone::bad
                          : Tone::plain;
}

std::string painted(const std::string& text, Tone tone, bool colour) {
  return !colour || tone == Tone::plain ? text : begin_of(tone) + text + std::string(end_of_colour);
}

std::string painted(const std::string& word, bool colour) {
  return painted(word, tone_of(word), colour);
}

std::string painted_lines(const std::string& text, std::string_view verdict, bool colour) {
  if (!colour) {
    return text;
  }
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    result += line.empty() ? line
              : at == 0    ? painted(line, tone_of(verdict), colour)
                           : painted_line(line, colour);
    result += end < text.size() ? "\n" : "";
    at = end + 1;
  }
  return result;
}

std::string cut_painted(const std::string& line, std::size_t width) {
  std::string cut;
  std::size_t characters = 0;
  bool is_painted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == escape) {
      const auto end = std::min(line.find('m', i), line.size() - 1);
      cut += line.substr(i, end + 1 - i);
      is_painted = !cut.ends_with(end_of_colour);
      i = end;
      continue;
    }
    if (begins_character(line[i]) && ++characters > width) {
      return cut + std::string(is_painted ? end_of_colour : "");
    }
    cut += line[i];
  }
  return cut;
}

}  // namespace efs::cli
