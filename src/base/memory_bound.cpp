// SPDX-License-Identifier: BSD-3-Clause
#include "base/memory_bound.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/mount_table.hpp"
#include "base/unique_fd.hpp"

namespace efs {
namespace {

using Bytes = std::uint64_t;

std::optional<Bytes> number_of(const std::string& word) {
  Bytes number = 0;
  const char* const end = word.data() + word.size();
  const auto [at, problem] = std::from_chars(word.data(), end, number);
  return problem == std::errc() && at == end ? std::optional(number) : std::nullopt;
}

// Returns the number that is the file's content; nullopt for "max" and for other text.
std::optional<Bytes> number_in(const std::string& file) {
  std::string word;
  std::ifstream(file) >> word;
  return number_of(word);
}

// Reads "KEY NUMBER" lines (memory.stat) or "KEY: NUMBER kB" lines (meminfo).
std::optional<Bytes> entry_in(const std::string& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line, name, number; std::getline(lines, line);) {
    if (std::istringstream(line) >> name >> number && name == key) {
      return number_of(number);
    }
  }
  return std::nullopt;
}

constexpr const char* meminfo = "/proc/meminfo";

Bytes available_in(const std::string& root) {
  return 1024 * entry_in(root + meminfo, "MemAvailable:").value_or(0);
}

Bytes less(Bytes from, Bytes take) {
  return from > take ? from - take : 0;
}

// A group membership of this process, as the kernel lists it.
struct Membership {
  std::string path;
  int version = 2;
};

std::vector<Membership> memberships(const std::string& controller, const std::string& root) {
  std::vector<Membership> found;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const int version = controllers.empty() ? 2 : 1;
    if (version == 2 || has_option(controllers, controller)) {
      found.push_back({line.substr(second + 1), version});
    }
  }
  return found;
}

// Returns the path from the mount point to the group's directory: "" or "/a/b". Returns nullopt if
// the group is not below this mount, or if the kernel writes its path relative to another namespace
// ("/../a").
std::optional<std::string> place_below(const MountLine& mount, const std::string& group) {
  if ((mount.root + "/" + group + "/").contains("/../")) {
    return std::nullopt;
  }
  const std::string top = mount.root == "/" ? "" : mount.root, path = group == "/" ? "" : group;
  if (path != top && !path.starts_with(top + "/")) {
    return std::nullopt;
  }
  return path.substr(top.size());
}

// Returns whether the mount shows the hierarchy of this membership.
bool shows(const MountLine& mount, const Membership& member, const std::string& controller) {
  return member.version == 2 ? mount.type == "cgroup2"
                             : mount.type == "cgroup" && has_option(mount.options, controller);
}

struct GroupMount {
  const MountLine* mount = nullptr;  // null: the hierarchy is not mounted
  std::optional<std::string> below;  // from place_below()
};

// If a hierarchy has several mounts, returns the mount that shows most of it.
GroupMount mount_of(const Membership& member, const std::string& controller,
                    const std::vector<MountLine>& mounts) {
  GroupMount best;
  for (const auto& mount : mounts) {
    if (!shows(mount, member, controller)) {
      continue;
    }
    auto place = place_below(mount, member.path);
    if (best.mount == nullptr || (place && (!best.below || place->size() > best.below->size()))) {
      best = {.mount = &mount, .below = std::move(place)};
    }
  }
  return best;
}

// Adds the group of this membership and the groups above it, as far as they are visible.
void add_groups(const Membership& member, const std::string& controller, const std::string& root,
                const std::vector<MountLine>& mounts, std::vector<ControlGroup>& groups) {
  const auto [mount, below] = mount_of(member, controller, mounts);
  if (mount == nullptr) {
    return;
  }
  for (std::string place = below.value_or("");; place.resize(place.rfind('/'))) {
    groups.push_back({root + mount->point + place, member.version});
    if (place.empty()) {
      return;
    }
  }
}

// Returns the smallest limit that a group's own files set, and the name of that file.
std::optional<MemoryBound> limit_of(const ControlGroup& group) {
  std::optional<MemoryBound> least;
  const auto consider = [&](std::optional<Bytes> limit, const char* file) {
    if (limit && (!least || *limit < least->bytes)) {
      least = {*limit, group.directory + "/" + file};
    }
  };
  const auto own = [&](const char* file) {
    consider(number_in(group.directory + "/" + file), file);
  };
  if (group.version == 2) {
    own("memory.max");
    own("memory.high");
  } else {
    own("memory.limit_in_bytes");
    // This entry covers all ancestors, also the invisible ones.
    const std::string stat = group.directory + "/memory.stat";
    consider(entry_in(stat, "hierarchical_memory_limit"), "memory.stat");
  }
  return least;
}

Bytes used_by(const ControlGroup& group) {
  const bool second = group.version == 2;
  const std::string stat = group.directory + "/memory.stat";
  const char* const file = second ? "/memory.current" : "/memory.usage_in_bytes";
  const auto usage = number_in(group.directory + file);
  const auto reclaimable = entry_in(stat, second ? "inactive_file" : "total_inactive_file");
  return less(usage.value_or(0), reclaimable.value_or(0));
}

// A group of version 1 may exclude its descendants from its count.
bool counts_those_below(const ControlGroup& group) {
  if (group.version == 2) {
    return true;
  }
  return number_in(group.directory + "/memory.use_hierarchy") != std::optional<Bytes>(0);
}

// Opens a tmpfs only if the kernel has the whole path cached; a path through a hung file system is
// not cached. Returns -1 if the tmpfs cannot be inspected.
UniqueFd open_at_once(const MountLine& mount) {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_CACHED | RESOLVE_NO_SYMLINKS;
  const char* const path = mount.point.c_str();
  UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how)));
  struct statx seen{};
  constexpr int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  if (!fd || ::statx(fd.get(), "", flags, STATX_TYPE, &seen) != 0) {
    return {};
  }
  // Another file system may be mounted over it.
  const std::string major = std::to_string(seen.stx_dev_major);
  if (major + ":" + std::to_string(seen.stx_dev_minor) != mount.device) {
    return {};
  }
  return fd;
}

// Parses "size=524288k" in the options of a tmpfs.
Bytes size_in(const std::string& options) {
  std::istringstream words(options);
  for (std::string word; std::getline(words, word, ',');) {
    if (word.starts_with("size=") && word.ends_with("k")) {
      return 1024 * number_of(word.substr(5, word.size() - 6)).value_or(0);
    }
  }
  return 0;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  const auto mounts = mount_table(root);
  for (const auto& member : memberships(controller, root)) {
    add_groups(member, controller, root, mounts, groups);
  }
  return groups;
}

MemoryBound memory_bound(std::optional<std::uint64_t> unpromised, const std::string& root) {
  MemoryBound least{available_in(root), root + meminfo};
  if (unpromised && *unpromised < least.bytes) {
    least = {*unpromised, least.source + ", less the memory promised to other instances"};
  }
  bool bound_by_above = true;
  int version = 0;
  for (const auto& group : control_groups("memory", root)) {
    const bool is_first = group.version != version;
    version = group.version;
    if (is_first) {
      bound_by_above = true;
    } else if (!counts_those_below(group)) {
      bound_by_above = false;
    }
    const auto limit = bound_by_above ? limit_of(group) : std::nullopt;
    const Bytes left = limit ? less(limit->bytes, used_by(group)) : least.bytes;
    if (left < least.bytes) {
      least = {left, limit->source};
    }
  }
  return least;
}

std::uint64_t unpromised_memory() {
  Bytes rest = available_in(""), unseen = 0;
  const auto take = [&](Bytes promised) {
    rest -= std::min(promised, rest / 2);
  };
  std::vector<std::string> devices;  // a bind mount lists a tmpfs twice
  for (const auto& mount : mount_table()) {
    const bool is_store = mount.type == "tmpfs" && mount.source == memory_store_source;
    if (!is_store || std::ranges::find(devices, mount.device) != devices.end()) {
      continue;
    }
    devices.push_back(mount.device);
    struct statfs fs{};
    const UniqueFd fd = open_at_once(mount);
    const bool seen = fd && ::fstatfs(fd.get(), &fs) == 0;
    if (seen) {
      take(static_cast<Bytes>(fs.f_bfree) * static_cast<Bytes>(fs.f_bsize));
    } else {
      unseen += size_in(mount.options);
    }
  }
  take(less(unseen, 1024 * entry_in(meminfo, "Shmem:").value_or(0)));
  return rest;
}

}  // namespace efs
