// SPDX-License-Identifier: BSD-3-Clause
#include "config/problems.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.hpp"

namespace efs::config {

void ProblemList::add(Mark mark, std::string text, std::string suggestion) {
  if (problems_.size() >= limit) {
    return;
  }
  problems_.push_back(
      {mark.line, mark.column, std::move(text), std::move(suggestion), std::move(mark.origin)});
}

Problems ProblemList::take_sorted() {
  std::ranges::stable_sort(problems_, {}, [](const Problem& p) {
    return std::tuple<const std::string&, int, int>(p.origin, p.line, p.column);
  });
  return std::exchange(problems_, {});
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::size_t end = std::min(text.size(), longest);
  // Never cut inside a UTF-8 sequence: continuation bytes are 10xxxxxx.
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return "'" + printable(text.substr(0, end)) + (end < text.size() ? "...'" : "'") + odd_note(text);
}

std::string to_string(const Problem& problem, std::string_view file) {
  std::string result(problem.origin.empty() ? file : std::string_view(problem.origin));
  if (problem.line > 0) {
    result += ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column);
  }
  result += ": " + problem.text;
  if (!problem.suggestion.empty()) {
    result += " (" + problem.suggestion + ")";
  }
  return result;
}

}  // namespace efs::config
