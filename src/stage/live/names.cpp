// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/names.hpp"

#include "config/paths.hpp"

namespace efs::stage {
namespace {

// The deepest directory that contains every possible match of a pattern.
std::string base_of(const std::string& pattern) {
  const auto slash = pattern.rfind('/', pattern.find_first_of("*?["));
  return slash == std::string::npos ? "" : pattern.substr(0, slash);
}

// The items that match, and all items below a directory that matches. `items`: parents come first.
std::vector<fs::WalkItem> matches_of(const std::string& pattern, std::vector<fs::WalkItem> items) {
  std::vector<fs::WalkItem> matching;
  std::string taken;  // a directory that matched, which includes its content
  for (auto& item : items) {
    const bool inside = !taken.empty() && config::is_within(item.path, taken);
    if (!inside && !config::glob_match(pattern, item.path)) {
      continue;
    }
    if (!inside && S_ISDIR(item.attributes.st_mode)) {
      taken = item.path;
    }
    matching.push_back(std::move(item));
  }
  return matching;
}

}  // namespace

Result<std::string> buffer_name(const config::JobConfig& config, const std::string& given) {
  if (given.empty()) {
    return fail(EINVAL, "an empty path");
  }
  if (given.find('\0') != std::string::npos || config::has_dot_dot(given)) {
    return fail(EINVAL, given + ": name it without \"..\"");
  }
  if (given[0] != '/') {
    return config::relative_path(given).value_or("");
  }
  const std::string path = "/" + config::relative_path(given).value_or("");
  // The mount first, because it may be below root-dir.
  for (const auto& top : {config.mount_dir, config.root_dir}) {
    if (config::is_within(path, top)) {
      return std::string(config::part_below(path, top));
    }
  }
  return fail(EINVAL, given + ": neither on the mount " + config.mount_dir +
                          " nor below root-dir " + config.root_dir);
}

Result<std::vector<fs::WalkItem>> items_of(fs::Staging& staging, const std::string& name) {
  auto there = staging.walk(name);
  if (there || !config::has_wildcard(name)) {
    return there;
  }
  auto below = staging.walk(base_of(name));
  if (!below) {
    return below;
  }
  auto matching = matches_of(name, std::move(*below));
  if (matching.empty()) {
    return fail(ENOENT, name + ": nothing in the buffer matches");
  }
  return matching;
}

}  // namespace efs::stage
