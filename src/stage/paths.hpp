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

inline std::string leaf_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

inline std::string join(const std::string& directory, const std::string& name) { return directory.empty() ? name : directory + "/" + name; }

}  // namespace efs::stage
