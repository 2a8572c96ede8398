// SPDX-License-Identifier: BSD-3-Clause
// Patterns: what matches them.
#include "stage/plan/expansion.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "config/paths.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {

namespace {

/// The paths of the names in the directory `path` that match, or may be above a match.
std::vector<std::string> candidates_in(const std::string& path,
                                       const std::vector<std::string>& names,
                                       const std::string& pattern, std::ptrdiff_t depth) {
  std::vector<std::string> candidates;
  for (const auto& name : names) {
    std::string candidate = join(path, name);
    const bool deeper = std::count(candidate.begin(), candidate.end(), '/') < depth;
    if (deeper || config::glob_match(pattern, candidate)) {
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

}  // namespace

std::optional<std::vector<std::string>> Expansion::list(const std::string& path, bool named) {
  auto directory = pfs_.open_beneath(root_, path, directory_flags);
  auto names = directory ? pfs_.list(*directory) : std::unexpected(directory.error());
  if (names) {
    return std::move(*names);
  }
  named_ = named;
  if (is_vanishing(names.error())) {
    vanished(path);
    return std::nullopt;
  }
  problem(absolute(path), "directory cannot be read: " + describe(names.error()));
  return std::nullopt;
}

void Expansion::add_glob(const std::string& pattern) {
  const auto before = plan_.problems.size();
  const std::string base = parent_of(pattern.substr(0, pattern.find_first_of("*?[")) + "x");
  const auto slashes = std::count(pattern.begin(), pattern.end(), '/');
  const auto depth = pattern.find("**") == std::string::npos ? slashes : std::ptrdiff_t{4096};
  // A missing base has no match; the code below reports that no file matches.
  auto there = pfs_.open_beneath(root_, base, directory_flags);
  const bool matched =
      (there || there.error().code == EACCES) && match_below(pattern, base, depth, true);
  if (!matched && plan_.problems.size() == before) {
    problem(absolute(pattern),
            "no file matches this pattern" + odd_note(pattern, "it") + name_hint(pattern));
  }
}

std::string Expansion::name_hint(const std::string& pattern) {
  const auto directory = pfs_.open_beneath(root_, parent_of(pattern), passage_flags);
  if (!directory || !pfs_.lstat(*directory, leaf_of(pattern))) {
    return "";
  }
  std::string literal;
  for (const char c : pattern) {
    literal += c == '*' || c == '?' || c == '[' ? std::string("[") + c + "]" : std::string(1, c);
  }
  return ", but a file has this very name: to mean it, write " + literal;
}

bool Expansion::match_below(const std::string& pattern, const std::string& path,
                            std::ptrdiff_t depth, bool named) {
  auto names = list(path, named);
  if (!names) {
    return false;
  }
  bool matched = false;
  for (const auto& found : survey_.look(candidates_in(path, *names, pattern, depth))) {
    if (config::glob_match(pattern, found.path)) {
      matched = true;
      if (add_parents(found.path, false)) {
        add_found(found, false);
      }
    } else if (const auto own = own_file(found)) {
      if (S_ISDIR(found.attributes.st_mode)) {
        skip(found.path, own->reason);
      }
    } else if (found.problem == Found::Problem::none && S_ISDIR(found.attributes.st_mode)) {
      matched = match_below(pattern, found.path, depth) || matched;
    }
  }
  return matched;
}

}  // namespace efs::stage
