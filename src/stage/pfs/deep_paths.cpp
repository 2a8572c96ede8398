// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/deep_paths.hpp"

#include <algorithm>

#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

/// Has it more than `few` components? Reads no more of a long path than it must.
bool is_deep(const std::string& path) {
  std::size_t at = path.find('/');
  for (std::size_t i = 1; i < DeepPaths::few && at != std::string::npos; ++i) {
    at = path.find('/', at + 1);
  }
  return at != std::string::npos;
}

}  // namespace

DeepPaths::Directory DeepPaths::nearest(const std::string& path) {
  const MutexLock lock(mutex_);
  auto best = open_.end();
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (best != open_.end() && it->path.size() <= best->path.size()) {
      continue;
    }
    const std::size_t size = it->path.size();
    const bool is_above = path.starts_with(it->path) && (path.size() == size || path[size] == '/');
    if (is_above) {
      best = it;
    }
  }
  if (best == open_.end()) {
    return {};
  }
  open_.splice(open_.begin(), open_, best);
  return open_.front();
}

DeepPaths::Directory DeepPaths::remember(Directory directory) {
  const MutexLock lock(mutex_);
  open_.push_front(directory);
  if (open_.size() > most_open) {
    open_.pop_back();
  }
  return directory;
}

Result<DeepPaths::Directory> DeepPaths::passage(const std::string& path) {
  Directory at = nearest(path);
  while (!at.handle || at.path.size() < path.size()) {
    const std::size_t begin = at.handle ? at.path.size() + 1 : 0;
    std::size_t end = path.find('/', begin);
    for (std::size_t i = 1; i < stride && end != std::string::npos; ++i) {
      end = path.find('/', end + 1);
    }
    end = std::min(end, path.size());
    auto opened = pfs_.open_beneath(at.handle ? *at.handle : root_, path.substr(begin, end - begin),
                                    passage_flags);
    if (!opened) {
      return std::unexpected(opened.error());
    }
    at = remember({.path = path.substr(0, end),
                   .handle = std::make_shared<const PfsHandle>(std::move(*opened))});
  }
  return at;
}

Result<PfsHandle> DeepPaths::open(const std::string& path, int flags) {
  if (!is_deep(path)) {
    return pfs_.open_beneath(root_, path, flags);
  }
  const auto parent = passage(parent_of(path));
  if (!parent) {
    return std::unexpected(parent.error());
  }
  return pfs_.open_beneath(*parent->handle, leaf_of(path), flags);
}

}  // namespace efs::stage
