#include "stage/input_list.hpp"

#include <algorithm>
#include <climits>

namespace efs::stage {
namespace {

constexpr std::size_t largest_list = 64U << 20U;  // bytes
constexpr std::size_t most_problems = 20;

/// The words of one line, as they are or in double quotes, in which \ takes the meaning from the next character. A # that
/// begins a word ends the line.
Result<std::vector<std::string>> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t at = 0; true;) {
    at = line.find_first_not_of(" \t", at);
    if (at == line.npos || line[at] == '#') return words;
    std::string word;
    if (line[at] == '"') {
      for (++at; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\' && at + 1 < line.size()) ++at;
        word += line[at];
      }
      if (at >= line.size()) return fail(EINVAL, "a quote is not closed");
      ++at;
      if (at < line.size() && line[at] != ' ' && line[at] != '\t') return fail(EINVAL, "something follows the closing quote; put a whole path in quotes");
    } else {
      const auto end = std::min(line.find_first_of(" \t", at), line.size());
      word = line.substr(at, end - at);
      at = end;
    }
    if (word.empty()) return fail(EINVAL, "an empty path");
    words.push_back(std::move(word));
  }
}

/// Relative to root-dir, without needless slashes and "."; the reason where it is no path below it.
Result<std::string> path_below(std::string_view given, const std::string& root_dir) {
  if (given.starts_with('/')) {
    const std::string prefix = root_dir == "/" ? root_dir : root_dir + "/";
    if (given != root_dir && !given.starts_with(prefix)) return fail(EINVAL, "is not below root-dir " + root_dir);
    given.remove_prefix(std::min(prefix.size(), given.size()));
  }
  std::string path;
  for (std::size_t at = 0; at < given.size();) {
    const auto end = std::min(given.find('/', at), given.size());
    const auto part = given.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") return fail(EINVAL, "holds '..'; write the path without it");
    if (part.size() > NAME_MAX) return fail(ENAMETOOLONG, "has a name of more than 255 bytes");
    path += (path.empty() ? "" : "/") + std::string(part);
  }
  if (path.size() >= PATH_MAX) return fail(ENAMETOOLONG, "is longer than a path can be");
  return path;
}

Result<std::string> path_in(std::string_view line, const std::string& root_dir) {
  if (line.contains('\0')) return fail(EINVAL, "holds a NUL character: a list is a text file");
  if (line.ends_with('\r')) return fail(EINVAL, "ends with a carriage return; convert the list to Unix line ends");
  auto words = words_of(line);
  if (!words) return std::unexpected(words.error());
  if (words->empty()) return std::string();
  if (words->size() > 1) {
    return fail(EINVAL, "names a second path; inputs keep their place below root-dir, so no destination can be given (a path that holds blanks goes in double quotes)");
  }
  auto path = path_below(words->front(), root_dir);
  if (!path) return fail(path.error().code, words->front().substr(0, 200) + " " + path.error().what);
  return path->empty() ? "." : *path;
}

}  // namespace

InputList parse_list(std::string_view text, const std::string& root_dir) {
  InputList list;
  std::size_t more = 0;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    auto path = path_in(text.substr(at, end - at), root_dir);
    at = end + 1;
    ++number;
    if (!path && list.problems.size() < most_problems) list.problems.push_back({path.error().what, number});
    else if (!path) ++more;
    else if (!path->empty()) list.inputs.push_back({*path == "." ? std::string() : std::move(*path), number});
  }
  if (more > 0) list.problems.push_back({std::to_string(more) + " more lines like those before", number});
  return list;
}

Result<std::string> read_list(PfsIo& pfs, const std::string& path) {
  auto file = pfs.open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!file) return std::unexpected(file.error());
  auto attributes = pfs.fstat(file->get());
  if (!attributes) return std::unexpected(attributes.error());
  if (!S_ISREG(attributes->st_mode)) return fail(EINVAL, "is not a regular file");
  std::string text;
  while (text.size() <= largest_list) {
    constexpr std::size_t step = 1U << 20U;
    const auto size = text.size();
    text.resize(size + step);
    auto got = pfs.read(file->get(), std::as_writable_bytes(std::span(text)).subspan(size), size);
    if (!got) return std::unexpected(got.error());
    text.resize(size + *got);
    if (*got == 0) return text;
  }
  return fail(EFBIG, "is larger than 64 MiB");
}

}  // namespace efs::stage
