// SPDX-License-Identifier: BSD-3-Clause
#include "config/paths.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

namespace efs::config {
namespace {

// Calls `visit` with every component that is neither empty nor ".".
template <typename Visitor>
void for_each_component(std::string_view path, Visitor visit) {
  while (!path.empty()) {
    const auto slash = std::min(path.find('/'), path.size());
    const auto component = path.substr(0, slash);
    if (!component.empty() && component != ".") {
      visit(component);
    }
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
}

// Returns the normalised components joined by '/'. Sets `left` if `..` goes above the start, where
// `..` has no effect.
std::string normalize(std::string_view path, bool& left) {
  std::vector<std::string_view> components;
  for_each_component(path, [&](std::string_view component) {
    if (component != "..") {
      components.push_back(component);
    } else if (components.empty()) {
      left = true;
    } else {
      components.pop_back();
    }
  });
  std::string result;
  for (const auto component : components) {
    if (!result.empty()) {
      result += '/';
    }
    result += component;
  }
  return result;
}

}  // namespace

std::optional<std::string> absolute_path(std::string_view path) {
  std::string whole(path);
  if (!path.starts_with('/')) {
    std::error_code error;
    const auto current = std::filesystem::current_path(error);
    if (error) {
      return std::nullopt;
    }
    whole = current.string() + "/" + whole;
  }
  bool left = false;  // "/.." is "/"
  return "/" + normalize(whole, left);
}

std::optional<std::string> relative_path(std::string_view path) {
  bool left = false;
  auto result = normalize(path, left);
  if (left) {
    return std::nullopt;
  }
  return result;
}

bool is_within(std::string_view path, std::string_view directory) {
  if (directory == "/") {
    return true;
  }
  return path.starts_with(directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

std::string_view part_below(std::string_view path, std::string_view directory) {
  path.remove_prefix(std::min(directory.size(), path.size()));
  if (path.starts_with('/')) {
    path.remove_prefix(1);
  }
  return path;
}

bool has_wildcard(std::string_view path) {
  return path.find_first_of("*?[") != path.npos;
}

bool has_dot_dot(std::string_view path) {
  bool found = false;
  for_each_component(path, [&](std::string_view component) { found = found || component == ".."; });
  return found;
}

}  // namespace efs::config
