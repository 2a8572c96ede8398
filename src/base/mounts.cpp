// SPDX-License-Identifier: BSD-3-Clause
#include "base/mounts.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "base/mount_table.hpp"
#include "base/unique_fd.hpp"

extern char** environ;

namespace efs {
namespace {

constexpr int patience = 5;  // seconds to wait for the answer of a mount

std::string text_of(dev_t device) {
  return std::to_string(major(device)) + ":" + std::to_string(minor(device));
}

// The topmost mount at `path`, if it is one of efs of this user.
std::optional<MountLine> efs_mount(const std::string& path, uid_t owner) {
  std::optional<MountLine> found;
  for (const auto& mount : mount_table()) {
    if (mount.point != path) {
      continue;
    }
    const bool ours =
        mount.type == "fuse.efs" && has_option(mount.options, "user_id=" + std::to_string(owner));
    found = ours ? std::optional(mount) : std::nullopt;
  }
  return found;
}

// statfs is never answered from a cache. If the caller is not the owner, the kernel rejects it
// without asking the daemon.
bool is_dead(const std::string& path) {
  struct statfs fs{};
  return ::statfs(path.c_str(), &fs) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

int unmount_with_helper(const std::string& path) {
  std::vector<std::string> words{"fusermount3", "-u", "-z", "-q", "--", path};
  std::vector<char*> argv;
  for (auto& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) {
    return ENOENT;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : EPERM;
}

// Returns an error if the mount may still have a daemon. `is_silent`: the mount does not answer.
Status refuse_living(const std::string& path, const MountLine& mount, const DeadMount& what,
                     bool is_silent) {
  if (is_silent && mount.source != what.unserved) {
    return fail(EBUSY, path + ": the instance mounted there does not answer");
  }
  if (!what.known && !is_silent && !is_dead(path)) {
    return fail(EBUSY, path + ": an instance that answers is mounted there");
  }
  return {};
}

// Returns the path of the entry `name` in the directory that the link `directory` leads to.
Result<std::string> path_of_entry(const std::string& directory, const std::string& name) {
  std::array<char, 4096> text{};
  const ssize_t length = ::readlink(directory.c_str(), text.data(), text.size() - 1);
  if (length <= 0 || name.empty() || name.find('/') != std::string::npos || name == "." ||
      name == "..") {
    return fail(EINVAL, "mount point " + name);
  }
  const std::string path(text.data(), static_cast<std::size_t>(length));
  return (path == "/" ? "" : path) + "/" + name;
}

// Unmounts the mount at `path`. `point`: the same through the descriptor of the directory, for
// root. Returns an errno.
int unmount(const std::string& path, const std::string& point) {
  if (::geteuid() != 0) {
    return unmount_with_helper(path);
  }
  return ::umount2(point.c_str(), MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) == 0 ? 0 : errno;
}

[[noreturn]] void access_and_exit(const std::string& path) {
  struct statfs fs{};
  struct stat st{};
  ::_exit(::statfs(path.c_str(), &fs) == 0 && ::stat(path.c_str(), &st) == 0 ? 0 : 1);
}

// Returns whether the process of this pidfd ends within `seconds`, or cannot be waited for so.
bool ends_within(int process, int seconds) {
  pollfd line{process, POLLIN, 0};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          until - std::chrono::steady_clock::now())
                          .count();
    const int ended = ::poll(&line, 1, static_cast<int>(std::max<long>(left, 0)));
    if (ended == 0) {
      return false;
    }
    if (ended > 0 || errno != EINTR) {
      return true;
    }
  }
}

}  // namespace

bool is_dead_mount(const std::string& path, uid_t owner) {
  return efs_mount(path, owner).has_value() && answers(path, patience) && is_dead(path);
}

Status drop_dead_mount(int parent, const std::string& name, uid_t owner, const DeadMount& what) {
  const std::string below = "/proc/self/fd/" + std::to_string(parent);
  const auto found = path_of_entry(below, name);
  if (!found) {
    return std::unexpected(found.error());
  }
  const std::string& path = *found;
  const auto mount = efs_mount(path, owner);
  if (!mount) {
    return {};
  }
  const bool is_silent = !what.known && !answers(path, patience);
  EFS_TRY(refuse_living(path, *mount, what, is_silent));
  // A mount point cannot be renamed. So an entry with this name and this device in this directory
  // is the mount found above.
  struct statx sx{};
  if (::statx(parent, name.c_str(), AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0,
              &sx) != 0 ||
      text_of(makedev(sx.stx_dev_major, sx.stx_dev_minor)) != mount->device) {
    return fail(EBUSY, path + ": another mount has taken its place");
  }
  if (is_silent) {
    abort_connection(makedev(sx.stx_dev_major, sx.stx_dev_minor));
  }
  const int code = unmount(path, below + "/" + name);
  return code == 0 ? Status{} : fail(code, "unmounting the dead mount " + path);
}

Status drop_dead_mount(const std::string& path, uid_t owner, const DeadMount& what) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) {
    return fail(EINVAL, path);
  }
  const UniqueFd parent(
      ::open(slash == 0 ? "/" : path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent) {
    return errno == ENOENT ? Status{} : fail_errno(path);
  }
  return drop_dead_mount(parent.get(), path.substr(slash + 1), owner, what);
}

std::string usual_source(const std::string& instance) {
  return "efs#" + instance;
}

void abort_connection(dev_t device) {
  const UniqueFd file(
      ::open(("/sys/fs/fuse/connections/" + std::to_string(minor(device)) + "/abort").c_str(),
             O_WRONLY | O_CLOEXEC));
  if (file) {
    (void)!::write(file.get(), "1", 1);
  }
}

std::vector<EfsMount> efs_mounts() {
  std::vector<EfsMount> found;
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string source, point, type, options;
    words >> source >> point >> type >> options;
    const auto at = options.find("user_id=");
    if (type == "fuse.efs" && at != std::string::npos) {
      found.push_back({unescaped(point),
                       static_cast<uid_t>(std::strtoul(options.c_str() + at + 8, nullptr, 10))});
    }
  }
  return found;
}

bool is_mounted_at(dev_t device, const std::string& point) {
  return std::ranges::any_of(mount_table(), [&](const MountLine& mount) {
    return mount.device == text_of(device) && mount.point == point;
  });
}

bool is_root_of_efs(int directory) {
  struct statx sx{};
  if (::statx(directory, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_MNT_ID,
              &sx) != 0 ||
      (sx.stx_mask & STATX_MNT_ID) == 0) {
    return false;
  }
  if ((sx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0 &&
      (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0) {
    return false;
  }
  const std::string id = std::to_string(sx.stx_mnt_id);
  return std::ranges::any_of(mount_table(), [&](const MountLine& mount) {
    return mount.id == id && mount.type == "fuse.efs";
  });
}

bool answers(const std::string& path, int seconds) {
  const pid_t child = ::fork();
  if (child < 0) {
    return true;  // unknown: try it
  }
  if (child == 0) {
    access_and_exit(path);
  }
  const UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, child, 0U)));
  // without a pidfd the child must be waited for
  const bool ended = !end || ends_within(end.get(), seconds);
  if (!ended) {
    ::kill(child, SIGKILL);
  }
  while (::waitpid(child, nullptr, ended ? 0 : WNOHANG) < 0 && errno == EINTR) {
  }
  return ended;
}

namespace {

// Returns the mount's position in the file system of its parent. Mounts that propagate to one
// another have the same position.
std::string place_in_parent(const MountLine& mount, const std::vector<MountLine>& all) {
  const auto parent = std::ranges::find(all, mount.parent, &MountLine::id);
  if (parent == all.end() || !mount.point.starts_with(parent->point)) {
    return mount.point;
  }
  const std::string below = mount.point.substr(parent->point == "/" ? 0 : parent->point.size());
  return parent->root == "/" ? below : parent->root + below;
}

}  // namespace

std::vector<std::string> mounts_on(const std::string& path) {
  const auto all = mount_table();
  const auto own = std::ranges::find_if(
      all, [&](const MountLine& mount) { return mount.point == path && mount.type == "fuse.efs"; });
  std::vector<std::string> points;
  for (auto mount = own; mount != all.end(); ++mount) {
    if (mount != own && (mount->point == path || mount->point.starts_with(path + "/"))) {
      points.push_back(mount->point);
    }
  }
  return points;
}

std::vector<std::string> mount_points_below(const std::string& path) {
  std::vector<std::string> points;
  const std::string prefix = path == "/" ? path : path + "/";
  for (auto& mount : mount_table()) {
    if (mount.point.size() > prefix.size() && mount.point.starts_with(prefix)) {
      points.push_back(std::move(mount.point));
    }
  }
  return points;
}

std::vector<std::string> other_places_of(const std::string& path) {
  const auto all = mount_table();
  const auto own = std::find_if(all.rbegin(), all.rend(),
                                [&](const MountLine& mount) { return mount.point == path; });
  if (own == all.rend()) {
    return {};
  }
  const std::string place = place_in_parent(*own, all);
  std::vector<std::string> others;
  for (const auto& mount : all) {
    if (mount.device == own->device && mount.point != path &&
        place_in_parent(mount, all) != place) {
      others.push_back(mount.point);
    }
  }
  return others;
}

}  // namespace efs
