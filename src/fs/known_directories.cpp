// SPDX-License-Identifier: BSD-3-Clause
#include "fs/known_directories.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "fs/namespace.hpp"

namespace efs::fs {
namespace {

/// The length of the common prefix, in bytes.
std::size_t common_bytes(std::string_view a, std::string_view b) {
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t same = 0;
  for (std::size_t differ = most; same < differ;) {
    const std::size_t half = (differ - same + 1) / 2;
    if (std::memcmp(a.data() + same, b.data() + same, half) == 0) {
      same += half;
    } else {
      differ = same + half - 1;
    }
  }
  return same;
}

/// The length of the common prefix of whole components, in bytes.
std::size_t common_components(std::string_view a, std::string_view b) {
  const std::size_t same = common_bytes(a, b);
  const auto ends = [same](std::string_view path) {
    return path.size() == same || path[same] == '/';
  };
  if (same == 0 || (ends(a) && ends(b))) {
    return same;
  }
  const std::size_t slash = a.substr(0, same).rfind('/');
  return slash == std::string_view::npos ? 0 : slash;
}

/// The number of components of `path`. May stop counting at `most`.
std::size_t components(std::string_view path, std::size_t most) {
  if (path.empty()) {
    return 0;
  }
  std::size_t count = 1;
  for (std::size_t at = path.find('/'); at != std::string_view::npos && count < most;
       at = path.find('/', at + 1)) {
    ++count;
  }
  return count;
}

/// The rest of the path after its first `size` bytes and the slash.
std::string_view behind(std::string_view path, std::size_t size) {
  return size == 0 ? path : path.substr(std::min(path.size(), size + 1));
}

}  // namespace

bool is_component(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255;
}

Result<Inode*> KnownDirectories::find(const Namespace& names, std::string_view path,
                                      const std::string& whole) {
  if (components(path, few + 1) <= few) {
    Walk walk{.at = &names.root()};
    EFS_TRY(descend(names, path, whole, walk));
    return walk.at;
  }
  const MutexLock lock(mutex_);
  const Start start = nearest(names, path);
  Walk walk{.at = &names.root()};
  if (start.known != nullptr) {
    walk.at = names.find(start.known->ino);
    for (; walk.steps < start.up; ++walk.steps) {
      walk.at = names.find(walk.at->parent);
    }
    walk.size = start.size;
    walk.depth = start.known->depth - start.up;
    steps_ += start.up;
  }
  const Status found = descend(names, path, whole, walk);
  remember(start, path, walk);
  return found ? Result<Inode*>(walk.at) : std::unexpected(found.error());
}

Status KnownDirectories::descend(const Namespace& names, std::string_view path,
                                 const std::string& whole, Walk& walk) {
  std::string name;
  while (walk.size < path.size()) {
    const std::size_t begin = walk.size == 0 ? 0 : walk.size + 1;
    const std::size_t slash = std::min(path.find('/', begin), path.size());
    name.assign(path.substr(begin, slash - begin));
    if (!is_component(name)) {
      return fail(EINVAL, whole + ": not a path below the mount point");
    }
    ++steps_;
    ++walk.steps;
    auto next = names.child(*walk.at, name);
    if (!next) {
      return fail(next.error().code,
                  whole + ": no directory " + std::string(path.substr(0, slash)));
    }
    if (!(*next)->is_directory()) {
      return fail(ENOTDIR,
                  whole + ": " + std::string(path.substr(0, slash)) + " is not a directory");
    }
    walk.at = *next;
    walk.size = slash;
    ++walk.depth;
  }
  return {};
}

// A removed directory was empty, so no known directory is below it. A renamed directory moves all
// directories below it, so a rename clears the known paths.
KnownDirectories::Start KnownDirectories::nearest(const Namespace& names, std::string_view path) {
  if (renames_ != names.directory_renames()) {
    known_.fill({});
    renames_ = names.directory_renames();
  }
  Start best{.cost = std::numeric_limits<std::size_t>::max()};
  for (auto& known : known_) {
    const Inode* inode = known.ino == 0 ? nullptr : names.find(known.ino);
    if (inode == nullptr || inode->nlink == 0) {
      known.ino = 0;
      continue;
    }
    const std::size_t same = common_components(known.path, path);
    const std::size_t up = components(behind(known.path, same), best.cost);
    const std::size_t down = components(behind(path, same), best.cost);
    const bool is_near = up <= known.depth - up;  // otherwise the root is nearer
    if (is_near && up + down < best.cost) {
      best = {.known = &known, .up = up, .size = same, .cost = up + down};
    }
  }
  return best;
}

// A search of few steps replaces the known directory from which it started. After a longer search
// that directory stays known, because callers may continue in both places.
void KnownDirectories::remember(const Start& start, std::string_view path, const Walk& walk) {
  if (walk.depth <= few) {
    return;
  }
  Known* known = start.known;
  if (known == nullptr || walk.steps > few) {
    known = &*std::ranges::min_element(known_, {}, &Known::used);
  }
  try {
    const std::size_t same = known == start.known ? start.size : 0;
    known->ino = 0;  // unused until the path is complete
    known->path.resize(same);
    known->path.append(path.substr(same, walk.size - same));
    known->ino = walk.at->ino;
    known->depth = walk.depth;
    known->used = ++uses_;
  } catch (const std::bad_alloc&) {
    return;  // the next search takes longer
  }
}

}  // namespace efs::fs
