// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Relative paths as text: "a/b/c", "" is the top.

#include <string>
#include <string_view>

namespace efs::stage {

inline std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// The same as a view into `path`.
inline std::string_view parent_view(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

/// The directory above the first pattern of a path with patterns (`open`); otherwise the whole
/// path.
inline std::string known_part(const std::string& path, bool open) {
  if (!open) {
    return path;
  }
  const std::string above = parent_of(path.substr(0, path.find_first_of("%*?[")));
  return above.empty() && path.starts_with('/') ? "/" : above;
}

/// The absolute path of `relative` below the directory `root`.
inline std::string absolute(const std::string& root, const std::string& relative) {
  if (relative.empty()) {
    return root;
  }
  return root == "/" ? "/" + relative : root + "/" + relative;
}

inline std::string leaf_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

inline std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

}  // namespace efs::stage
