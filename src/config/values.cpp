// SPDX-License-Identifier: BSD-3-Clause
#include <strings.h>
#include <array>
#include <charconv>
#include <limits>

#include "base/text.hpp"
#include "config/paths.hpp"
#include "config/validate.hpp"

namespace efs::config {
namespace {

std::string size_range(std::uint64_t least, std::uint64_t most) {
  if (most == std::numeric_limits<std::uint64_t>::max()) {
    return "at least " + format_bytes(least);
  }
  return format_bytes(least) + " to " + format_bytes(most);
}

}  // namespace

const Word* find_word(const Section& section, std::string_view key, std::span<const Word> words,
                      ProblemList& problems) {
  const auto* value = section.find(key);
  if (!value) {
    return nullptr;
  }
  std::vector<std::string_view> names;
  for (const auto& word : words) {
    if (word.name.size() == value->text.size() &&
        strncasecmp(word.name.data(), value->text.data(), word.name.size()) == 0) {
      return &word;
    }
    names.push_back(word.name);
  }
  std::string suggestion;
  if (const auto near = nearest(value->text, names); !near.empty()) {
    suggestion = "did you mean " + in_quotes(near) + "?";
  } else {
    for (const auto name : names) {
      suggestion.append(suggestion.empty() ? "one of: " : ", ").append(name);
    }
  }
  problems.add(value->mark, in_quotes(value->text) + " is not a value of " + in_quotes(key),
               suggestion);
  return nullptr;
}

std::optional<std::uint64_t> read_size(const Section& section, std::string_view key,
                                       std::uint64_t least, std::uint64_t most,
                                       ProblemList& problems) {
  const auto* value = section.find(key);
  if (!value) {
    return std::nullopt;
  }
  const auto size = parse_size(value->text);
  if (!size) {
    problems.add(value->mark,
                 in_quotes(value->text) + " is not a size that " + in_quotes(key) + " can have",
                 "sizes are written \"2 GiB\", \"3.5 TB\" or \"4096\"");
    return std::nullopt;
  }
  if (*size < least || *size > most) {
    problems.add(value->mark, in_quotes(key) + " is " + in_quotes(value->text) + ", out of range",
                 size_range(least, most));
    return std::nullopt;
  }
  return size;
}

std::optional<std::uint64_t> read_number(const Section& section, std::string_view key, int least,
                                         int most, ProblemList& problems) {
  const auto* value = section.find(key);
  if (!value) {
    return std::nullopt;
  }
  const char* const end = value->text.data() + value->text.size();
  int number = 0;
  const auto [stop, error] = std::from_chars(value->text.data(), end, number);
  if (error == std::errc{} && stop == end && number >= least && number <= most) {
    return static_cast<std::uint64_t>(number);
  }
  problems.add(value->mark, in_quotes(key) + " is " + in_quotes(value->text),
               "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return std::nullopt;
}

bool is_usable_path(const Value& value, std::string_view key, ProblemList& problems) {
  if (value.text.contains('\0')) {
    problems.add(value.mark, in_quotes(key) + " holds a NUL character", "no path can; remove it");
    return false;
  }
  return true;
}

std::string read_path(const Section& section, std::string_view key, ProblemList& problems) {
  const auto* value = section.find(key);
  if (!value || !is_usable_path(*value, key, problems)) {
    return {};
  }
  auto path = absolute_path(value->text);
  if (!path) {
    problems.add(value->mark, in_quotes(key) + " is relative and the working directory is gone",
                 "write an absolute path");
    return {};
  }
  return *path;
}

}  // namespace efs::config
