// SPDX-License-Identifier: BSD-3-Clause
#include "cli/preload.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace efs::cli {
namespace {

// The loader separates the entries of LD_PRELOAD by colons and blanks.
constexpr std::string_view separators = ": ";

bool is_listed(std::string_view list, std::string_view library) {
  while (!list.empty()) {
    const auto end = list.find_first_of(separators);
    if (list.substr(0, end) == library) {
      return true;
    }
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return false;
}

}  // namespace

Result<std::string> find_preloaded_library(const std::string& file, const std::string& feature) {
  std::error_code problem;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", problem);
  const auto prefix = self.parent_path().parent_path();
  for (const auto& path : {prefix / "lib/efs" / file, prefix / "lib" / file}) {
    if (::access(path.c_str(), R_OK) != 0) {
      continue;
    }
    if (path.string().find_first_of(separators) != std::string::npos) {
      return fail(EINVAL,
                  path.string() +
                      ": the loader accepts no library with a blank or a colon in its path. "
                      "Install efs in another directory");
    }
    return path.string();
  }
  return fail(ENOENT, (prefix / "lib/efs" / file).string() + ": the library of " + feature +
                          " is missing. Install it with efs");
}

void preload(const std::string& library) {
  const char* const others = std::getenv("LD_PRELOAD");
  if (others == nullptr || *others == '\0') {
    ::setenv("LD_PRELOAD", library.c_str(), 1);
  } else if (!is_listed(others, library)) {
    ::setenv("LD_PRELOAD", (std::string(others) + ":" + library).c_str(), 1);
  }
}

}  // namespace efs::cli
