// SPDX-License-Identifier: BSD-3-Clause
#include "control/instances.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/file_lock.hpp"

namespace efs::control {
namespace {

std::string root_directory() {
  const char* given = std::getenv("EFS_ROOT_RUNTIME_DIR");
  return given != nullptr && *given == '/' ? given : "/run/efs";
}

void list_below(const std::string& base, std::vector<Instance>& instances) {
  DIR* directory = ::opendir(base.c_str());
  if (directory == nullptr) {
    return;
  }
  while (const dirent* entry = ::readdir(directory)) {
    struct stat st{};
    if (entry->d_name[0] == '.' ||
        ::fstatat(::dirfd(directory), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode)) {
      continue;
    }
    if (::geteuid() != 0 && st.st_uid != ::geteuid()) {
      continue;
    }
    Instance instance{
        .name = entry->d_name, .directory = base + "/" + entry->d_name, .owner = st.st_uid};
    const UniqueFd opened(::openat(::dirfd(directory), entry->d_name,
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    instance.state = state_of_manifest(opened.get());
    instance.alive = is_alive(instance.directory);
    instances.push_back(instance);
  }
  ::closedir(directory);
}

bool is_locked(const UniqueFd& fd) {
  return fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

std::string store_name(unsigned number) {
  return number == 0 ? "store" : "store." + std::to_string(number);
}

Status drop_stores(int directory) {
  Status first;
  for (unsigned number = 0; number < most_stores; ++number) {
    const std::string name = store_name(number);
    const std::string store = "/proc/self/fd/" + std::to_string(directory) + "/" + name;
    // umount2() returns EPERM to an unprivileged caller even if nothing is mounted. A directory
    // that unlinkat() removes was not a mount point.
    const int code = ::umount2(store.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0 ||
                             errno == EINVAL || errno == ENOENT
                         ? 0
                         : errno;
    const bool gone = ::unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
    if (code != 0 && !gone && first) {
      first = fail(code, name + ": " + std::strerror(code));
    }
  }
  return first;
}

std::string runtime_directory(uid_t uid) {
  if (const char* given = std::getenv("EFS_RUNTIME_DIR"); given != nullptr && *given == '/') {
    return given;
  }
  if (uid == 0) {
    return root_directory();
  }
  if (const char* xdg = std::getenv("XDG_RUNTIME_DIR"); xdg != nullptr && *xdg == '/') {
    return std::string(xdg) + "/efs";
  }
  return "/tmp/efs-" + std::to_string(uid);
}

std::string state_of_manifest(int directory) {
  struct stat st{};
  if (directory < 0 || ::fstatat(directory, "instance.json", &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return "";
  }
  return std::to_string(st.st_ino) + " " + std::to_string(st.st_ctim.tv_sec) + "." +
         std::to_string(st.st_ctim.tv_nsec);
}

bool is_alive(const std::string& directory) {
  const UniqueFd top(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  const UniqueFd file(
      top ? ::openat(top.get(), lock_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1);
  return is_locked(top) || is_locked(file);
}

std::vector<Instance> list_instances() {
  std::vector<Instance> instances;
  const std::string own = runtime_directory(::geteuid());
  list_below(own, instances);
  if (own != root_directory() && std::getenv("EFS_RUNTIME_DIR") == nullptr) {
    list_below(root_directory(), instances);
  }
  std::sort(instances.begin(), instances.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return instances;
}

Result<LockedInstance> lock_instance(const Instance& instance) {
  LockedInstance held{
      .directory = UniqueFd(
          ::open(instance.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
      .lock = {}};
  if (!held.directory) {
    return fail_errno(instance.directory);
  }
  held.lock.reset(
      ::openat(held.directory.get(), lock_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!lock_soon(held.directory) || (held.lock && !lock_soon(held.lock))) {
    return fail(EBUSY, instance.name + " is running, or another efs clean runs on it");
  }
  // Before this process had the lock, another process may have removed the instance, and a start
  // may have created a new one of this name. The owner must match: the new instance may belong to
  // another user.
  struct stat ours{}, now{};
  if (::fstat(held.directory.get(), &ours) != 0 || ::lstat(instance.directory.c_str(), &now) != 0 ||
      ours.st_ino != now.st_ino || ours.st_dev != now.st_dev || ours.st_uid != instance.owner) {
    return fail(ENOENT, instance.name + " has just been removed");
  }
  return held;
}

Status discard(const Instance& instance, const LockedInstance& held) {
  const UniqueFd& directory = held.directory;
  if (const Status dropped = drop_stores(directory.get()); !dropped) {
    return fail(dropped.error().code, instance.directory + "/" + describe(dropped.error()));
  }
  // If the directory must stay, its lock stays too: without the lock, no start could reuse the
  // directory.
  const bool goes = ::faccessat(directory.get(), "..", W_OK, AT_EACCESS) == 0;
  for (const char* name : files_of_an_instance) {
    if (goes || std::string_view(name) != lock_name) {
      ::unlinkat(directory.get(), name, 0);
    }
  }
  if (!goes) {
    return fail(EACCES, instance.name + ": what it left is removed, and " + instance.directory +
                            " is not, as another user owns its parent; the next start reuses it");
  }
  return ::rmdir(instance.directory.c_str()) == 0 ? Status{} : fail_errno(instance.directory);
}

}  // namespace efs::control
