// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/input_list.hpp"

#include <algorithm>
#include <climits>
#include <optional>

#include "base/text.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t largest_list = 64U << 20U;  // bytes
constexpr std::size_t most_problems = 20;

/// The word in double quotes at `at`, which then is behind the closing quote.
Result<std::string> quoted_word(std::string_view line, std::size_t& at) {
  std::string word;
  for (++at; at < line.size() && line[at] != '"'; ++at) {
    if (line[at] == '\\' && at + 1 < line.size()) {
      ++at;
    }
    word += line[at];
  }
  if (at >= line.size()) {
    return fail(EINVAL, "a quote is not closed");
  }
  ++at;
  if (at < line.size() && line[at] != ' ' && line[at] != '\t') {
    return fail(EINVAL, "something follows the closing quote; put a whole path in quotes");
  }
  return word;
}

/// The words of one line, plain or in double quotes. In quotes a \ escapes the next character. A #
/// at the beginning of a word ends the line.
Result<std::vector<std::string>> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t at = 0; true;) {
    at = line.find_first_not_of(" \t", at);
    if (at == line.npos || line[at] == '#') {
      return words;
    }
    std::string word;
    if (line[at] == '"') {
      auto quoted = quoted_word(line, at);
      if (!quoted) {
        return std::unexpected(quoted.error());
      }
      word = std::move(*quoted);
    } else {
      const auto end = std::min(line.find_first_of(" \t", at), line.size());
      word = line.substr(at, end - at);
      at = end;
    }
    if (word.empty()) {
      return fail(EINVAL, "an empty path");
    }
    words.push_back(std::move(word));
  }
}

/// A relative path without needless slashes and ".".
Result<std::string> normalised(std::string_view given) {
  std::string path;
  for (std::size_t at = 0; at < given.size();) {
    const auto end = std::min(given.find('/', at), given.size());
    const auto part = given.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") {
      continue;
    }
    if (part == "..") {
      return fail(EINVAL, "holds '..'; write the path without it");
    }
    if (part.size() > NAME_MAX) {
      return fail(ENAMETOOLONG, "has a name of more than 255 bytes");
    }
    path += (path.empty() ? "" : "/") + std::string(part);
  }
  if (path.size() >= PATH_MAX) {
    return fail(ENAMETOOLONG, "is longer than a path can be");
  }
  return path;
}

/// Normalises a path relative to `top`, which the job file calls `key`. An error if the path is not
/// below `top`.
Result<std::string> path_below(std::string_view given, const std::string& top, const char* key) {
  if (given.starts_with('/')) {
    const std::string prefix = top == "/" ? top : top + "/";
    if (given != top && !given.starts_with(prefix)) {
      return fail(EINVAL, std::string("is not below ") + key + " " + top);
    }
    given.remove_prefix(std::min(prefix.size(), given.size()));
  }
  return normalised(given);
}

/// Describes an invisible character at the beginning or end of a word without quotes; "": none. In
/// quotes it is part of the path.
std::string odd_end_of_word(std::string_view line) {
  const auto is_blank = [](char c) {
    return c == ' ' || c == '\t';
  };
  for (std::size_t from = 0; from < line.size();) {
    const auto odd = find_odd(line.substr(from));
    if (!odd) {
      return "";
    }
    const auto at = from + odd->at;
    from = at + odd->length;
    if (line.substr(0, at).find_first_of("\"#") != std::string_view::npos) {
      return "";
    }
    const bool begins = at == 0 || is_blank(line[at - 1]),
               ends = from == line.size() || is_blank(line[from]);
    if (begins || ends) {
      return "holds " + odd->name + ", at column " + std::to_string(at + 1) +
             ": remove it, or put the path in double quotes";
    }
  }
  return "";
}

struct Places {
  const std::string& root_dir;
  const std::string& mount_dir;
  bool in_place;
};

std::unexpected<Error> refused_word(const std::string& word, const Error& error) {
  return fail(error.code, word.substr(0, 200) + " " + error.what);
}

/// The input `path` with its destination, the second word of the line.
Result<ListedInput> input_with_destination(std::string path, const std::string& word,
                                           const Places& places) {
  const std::string named = "the destination " + word;
  auto as = path_below(word, places.mount_dir, "mount-dir");
  if (!as) {
    return refused_word(named, as.error());
  }
  if (*as == path) {
    return ListedInput{.path = std::move(path)};
  }
  if (as->empty()) {
    return refused_word(named, {EINVAL, "is the mount point itself; name a path below it"});
  }
  if (places.in_place) {
    return refused_word(named, {EINVAL,
                                "does not go with in-place: a result would not go to where its "
                                "input is; name a results-dir"});
  }
  return ListedInput{.path = std::move(path), .as = std::move(*as)};
}

/// The input on the line; nullopt for a blank line or a comment.
Result<std::optional<ListedInput>> input_in(std::string_view line, const Places& places) {
  if (line.contains('\0')) {
    return fail(EINVAL, "holds a NUL character: a list is a text file");
  }
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  if (auto odd = odd_end_of_word(line); !odd.empty()) {
    return fail(EINVAL, std::move(odd));
  }
  auto words = words_of(line);
  if (!words) {
    return std::unexpected(words.error());
  }
  if (words->empty()) {
    return std::nullopt;
  }
  if (words->size() > 2) {
    return fail(EINVAL,
                "names a third path; a line has a path and perhaps its destination (a path that "
                "holds blanks goes in double quotes)");
  }
  auto path = path_below(words->front(), places.root_dir, "root-dir");
  if (!path) {
    return refused_word(words->front(), path.error());
  }
  if (words->size() == 1) {
    return ListedInput{.path = std::move(*path)};
  }
  return input_with_destination(std::move(*path), words->back(), places);
}

}  // namespace

InputList parse_list(std::string_view text, const std::string& root_dir,
                     const std::string& mount_dir, bool in_place) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (text.starts_with(byte_order_mark)) {
    text.remove_prefix(byte_order_mark.size());
  }
  InputList list;
  std::size_t more = 0;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    auto input = input_in(text.substr(at, end - at), {root_dir, mount_dir, in_place});
    at = end + 1;
    ++number;
    if (!input && list.problems.size() < most_problems) {
      list.problems.push_back({input.error().what, number});
    } else if (!input) {
      ++more;
    } else if (*input) {
      list.inputs.push_back(
          {.path = std::move((*input)->path), .as = std::move((*input)->as), .line = number});
    }
  }
  if (more > 0) {
    list.problems.push_back({std::to_string(more) + " more lines like those before", number});
  }
  return list;
}

Result<std::string> read_list(PfsIo& pfs, const std::string& path) {
  auto file = pfs.open(no_directory, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!file) {
    return std::unexpected(file.error());
  }
  auto attributes = pfs.fstat(*file);
  if (!attributes) {
    return std::unexpected(attributes.error());
  }
  if (!S_ISREG(attributes->st_mode)) {
    return fail(EINVAL, "is not a regular file");
  }
  std::string text;
  while (text.size() <= largest_list) {
    constexpr std::size_t step = 1U << 20U;
    const auto size = text.size();
    text.resize(size + step);
    auto got = pfs.read(*file, std::as_writable_bytes(std::span(text)).subspan(size), size);
    if (!got) {
      return std::unexpected(got.error());
    }
    text.resize(size + *got);
    if (*got == 0) {
      return text;
    }
  }
  return fail(EFBIG, "is larger than 64 MiB");
}

}  // namespace efs::stage
