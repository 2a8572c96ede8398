// SPDX-License-Identifier: BSD-3-Clause
#include "cli/preflight.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/mounts.hpp"
#include "base/unique_fd.hpp"

namespace efs::cli {
namespace {

using Problems = std::vector<stage::PlanProblem>;

// Returns the line of the job file that sets the value; 0 if the value comes from another source.
int line_of(const config::JobConfig& config, std::string_view section, std::string_view key) {
  const auto value = std::ranges::find_if(config.effective, [&](const config::EffectiveValue& v) {
    return v.section == section && v.key == key && v.source == config::Source::job_file;
  });
  const auto colon = value == config.effective.end() ? std::string::npos : value->where.rfind(':');
  return colon == std::string::npos ? 0 : std::atoi(value->where.c_str() + colon + 1);
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == 0 || slash == path.npos ? "/" : path.substr(0, slash);
}

// Returns why nothing can be created in the directory, or "".
std::string unusable(const std::string& directory) {
  struct stat st{};
  if (::stat(directory.c_str(), &st) != 0) {
    return std::strerror(errno);
  }
  if (!S_ISDIR(st.st_mode)) {
    return std::strerror(ENOTDIR);
  }
  return ::access(directory.c_str(), W_OK | X_OK) == 0 ? "" : std::strerror(errno);
}

bool is_empty(int directory) {
  DIR* entries = ::fdopendir(::dup(directory));
  bool empty = true;
  while (const dirent* entry = entries == nullptr ? nullptr : ::readdir(entries)) {
    if (const std::string_view name = entry->d_name; name != "." && name != "..") {
      empty = false;
    }
  }
  if (entries != nullptr) {
    ::closedir(entries);
  }
  return empty;
}

// Skips a point with a mounted instance, perhaps of this job: the mount may be dead and must not be
// accessed. A start reports its owner. (The kernel lists mounts without symbolic links.)
bool is_efs_mount(const std::filesystem::path& path) {
  std::error_code problem;
  const auto parent = std::filesystem::canonical(path.parent_path(), problem);
  const std::string real = problem ? path.string() : (parent / path.filename()).string();
  return std::ranges::any_of(efs_mounts(),
                             [&](const EfsMount& mount) { return mount.point == real; });
}

std::string problem_of_mount_point(const std::string& path) {
  if (is_efs_mount(path)) {
    return {};
  }
  const UniqueFd point(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const int code = errno;
  struct stat st{};
  if (!point && code == ENOENT && ::lstat(path.c_str(), &st) != 0) {
    const std::string parent = parent_of(path), why = unusable(parent);
    return why.empty() ? "" : "does not exist and cannot be made in " + parent + ": " + why;
  }
  if (!point) {
    return code == ENOTDIR ? "is not a directory"
                           : "cannot be used: " + std::string(std::strerror(code));
  }
  if (!is_empty(point.get())) {
    return "is not empty: its files would be hidden by the mount; name an empty directory";
  }
  if (::fstat(point.get(), &st) == 0 && ::geteuid() != 0 && st.st_uid != ::geteuid()) {
    return "belongs to another user";
  }
  return {};
}

// Checks the directory of an fsdax backend.
std::string problem_of_store(const config::Backend& backend, const std::string& name) {
  struct stat st{};
  if (::stat(backend.daxfs.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) {
    return "is not a directory";
  }
  const std::string why =
      ::lstat((backend.daxfs + "/efs-" + std::to_string(::geteuid()) + "-" + name).c_str(), &st) ==
              0
          ? ""
          : unusable(backend.daxfs);
  return why.empty() ? "" : "is a directory in which no store can be made: " + why;
}

}  // namespace

Problems preflight_problems(const config::JobConfig& config) {
  Problems problems;
  const auto add = [&](const std::string& what, std::string reason, int line) {
    if (!reason.empty()) {
      problems.push_back({.path = what, .reason = std::move(reason), .line = line});
    }
  };
  add("mount-dir " + config.mount_dir, problem_of_mount_point(config.mount_dir),
      line_of(config, "global-settings", "mount-dir"));
  for (std::size_t i = 0; i < config.backends.size(); ++i) {
    const auto& backend = config.backends[i];
    if (backend.type != config::BackendType::fsdax) {
      continue;
    }
    add("backend " + backend.id + ": daxfs " + backend.daxfs,
        problem_of_store(backend, config.name),
        line_of(config, "backends[" + std::to_string(i + 1) + "]", "daxfs"));
  }
  return problems;
}

}  // namespace efs::cli
