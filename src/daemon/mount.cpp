// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/mount.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/mounts.hpp"
#include "base/socket.hpp"
#include "config/mount_options.hpp"
#include "daemon/as_root.hpp"

extern char** environ;

namespace efs::daemon {

using config::mount_dev, config::mount_noatime, config::mount_noexec, config::mount_readonly,
    config::mount_strictatime, config::mount_suid;

namespace {

std::string path_of(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

std::string target_of(int fd) {
  std::array<char, 4096> target{};
  const ssize_t n = ::readlink(path_of(fd).c_str(), target.data(), target.size() - 1);
  return n > 0 ? std::string(target.data(), static_cast<std::size_t>(n)) : std::string();
}

int run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const auto& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (::posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) {
    return 127;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

unsigned long kernel_flags(std::uint64_t flags, bool root) {
  unsigned long result = 0;
  // only root may provide set-id programs of root
  if (!root || (flags & mount_suid) == 0) {
    result |= MS_NOSUID;
  }
  if (!root || (flags & mount_dev) == 0) {
    result |= MS_NODEV;
  }
  if ((flags & mount_noexec) != 0) {
    result |= MS_NOEXEC;
  }
  if ((flags & mount_noatime) != 0) {
    result |= MS_NOATIME;
  }
  if ((flags & mount_strictatime) != 0) {
    result |= MS_STRICTATIME;
  }
  if ((flags & mount_readonly) != 0) {
    result |= MS_RDONLY;
  }
  return result;
}

// These flags send no request to the server of a mount.
constexpr int without_asking = AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;

// Does another mount cover the directory by now?
bool is_covered(int point, int parent, const std::string& name) {
  struct statx ours{}, now{};
  if (::statx(point, "", without_asking | AT_EMPTY_PATH, STATX_MNT_ID, &ours) != 0 ||
      ::statx(parent, name.c_str(), without_asking, STATX_MNT_ID, &now) != 0) {
    return false;
  }
  return (ours.stx_mask & now.stx_mask & STATX_MNT_ID) != 0 && ours.stx_mnt_id != now.stx_mnt_id;
}

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Returns 0 if nothing exists there.
dev_t device_at(int parent, const std::string& name) {
  struct statx sx{};
  return ::statx(parent, name.c_str(), without_asking, 0, &sx) == 0
             ? makedev(sx.stx_dev_major, sx.stx_dev_minor)
             : 0;
}

}  // namespace

Status Mount::check(const UniqueFd& point) const {
  struct stat st{};
  if (!point || ::fstat(point.get(), &st) != 0 || !S_ISDIR(st.st_mode)) {
    return fail(ENOTDIR, "the mount point is not a directory");
  }
  if (uid_ != 0 && st.st_uid != uid_) {
    return fail(EPERM, "the mount point belongs to another user");
  }
  if (is_root_of_efs(point.get())) {
    return fail(EBUSY, "another instance is mounted there");
  }
  if (privileged_ && !fuse_device_) {
    return fail(ENODEV, "/dev/fuse cannot be opened: is FUSE in this kernel?");
  }
  return {};
}

Status Mount::make(const UniqueFd& point, std::uint64_t flags, const std::string& source) {
  EFS_TRY(check(point));
  if (is_mounted()) {
    return fail(EBUSY, "already mounted");
  }
  if (!privileged_) {
    return make_by_helper(point, flags, source);
  }
  const AsRoot root;
  const std::string where = target_of(point.get());
  UniqueFd parent(::openat(point.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (parent && is_covered(point.get(), parent.get(), last_part(where))) {
    return fail(EBUSY, "a file system was mounted there meanwhile");
  }
  const std::string data = "fd=" + std::to_string(fuse_device_.get()) +
                           ",rootmode=40000,user_id=" + std::to_string(uid_) +
                           ",group_id=" + std::to_string(gid_) + ",default_permissions,allow_other";
  if (!parent || ::mount(source.c_str(), path_of(point.get()).c_str(), "fuse.efs",
                         kernel_flags(flags, uid_ == 0), data.c_str()) != 0) {
    return fail_errno("mount");
  }
  point_ = where;
  parent_ = std::move(parent);
  device_ = device_at(parent_.get(), name());
  fuse_ = std::move(fuse_device_);
  return {};
}

std::string Mount::name() const {
  return last_part(point_);
}

// A mounted directory cannot be renamed, and a descriptor holds its parent. One case is left:
// another process unmounted ours and mounted something else there.
bool Mount::is_still_ours() const {
  return device_ != 0 && device_at(parent_.get(), name()) == device_;
}

// Without privilege, fusermount3 mounts. It is set-uid root and passes the descriptor through
// _FUSE_COMMFD.
Status Mount::make_by_helper(const UniqueFd& point, std::uint64_t flags,
                             const std::string& source) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) != 0) {
    return fail_errno("socketpair");
  }
  UniqueFd ours(pair[0]), theirs(pair[1]);
  ::fcntl(ours.get(), F_SETFD, FD_CLOEXEC);
  const std::string where = target_of(point.get());
  if (const UniqueFd parent(::openat(point.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
      parent && is_covered(point.get(), parent.get(), last_part(where))) {
    return fail(EBUSY, "a file system was mounted there meanwhile");
  }
  std::string options = "default_permissions,subtype=efs,fsname=" + source;
  if ((flags & mount_noexec) != 0) {
    options += ",noexec";
  }
  if ((flags & mount_noatime) != 0) {
    options += ",noatime";
  }
  if ((flags & mount_readonly) != 0) {
    options += ",ro";
  }
  ::setenv("_FUSE_COMMFD", std::to_string(theirs.get()).c_str(), 1);
  const int code = run({"fusermount3", "-o", options, "--", where});
  ::unsetenv("_FUSE_COMMFD");
  theirs.reset();
  if (code != 0) {
    return fail(EPERM,
                "fusermount3 could not mount (is /dev/fuse open to you, is fuse3 installed?)");
  }
  std::byte byte{};
  auto answer = receive_with_descriptors(ours.get(), {&byte, 1}, 1);
  if (!answer || answer->fds.empty()) {
    return fail(EIO, "fusermount3 sent no descriptor");
  }
  fuse_ = std::move(answer->fds.front());
  point_ = where;
  return {};
}

// Returns an errno or 0. Retries while copies of the mount cover it (a bind mount over itself).
int Mount::unmount_by_call(int flags) const {
  constexpr int most = 16;
  const AsRoot root;
  for (int times = 0; times < most && is_still_ours(); ++times) {
    // EINVAL: another process has already unmounted it
    if (::umount2((path_of(parent_.get()) + "/" + name()).c_str(), flags | UMOUNT_NOFOLLOW) != 0) {
      return errno == EINVAL ? 0 : errno;
    }
  }
  return is_mounted_at(device_, point_) ? EBUSY : 0;  // another mount covers it
}

Status Mount::unmount() {
  if (!is_mounted()) {
    return {};
  }
  int code = 0;
  if (privileged_) {
    // A nonlazy unmount proves that no program has an open file. Only then are the containers safe
    // to read.
    code = unmount_by_call(0);
  } else if (run({"fusermount3", "-u", "-q", "--", point_}) != 0) {
    pollfd gone{.fd = fuse_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&gone, 1, 0) < 0 || (gone.revents & POLLERR) == 0) {
      code = EBUSY;
    }
  }
  if (code != 0) {
    return fail(code, "unmount: " + std::string(std::strerror(code)));
  }
  point_.clear();
  fuse_.reset();
  return {};
}

// A dead mount would hang every program that accesses it.
void Mount::detach() {
  if (is_mounted()) {
    if (!privileged_) {
      run({"fusermount3", "-u", "-z", "-q", "--", point_});
    } else if (const int code = unmount_by_call(MNT_FORCE | MNT_DETACH); code != 0) {
      log::warn("event=unmount_failed mount={} reason=\"{}\"", point_, std::strerror(code));
    }
    log::warn("event=mount_without_server mount={} action=unmounted", point_);
    point_.clear();
  }
  fuse_.reset();  // closes the last descriptor: this ends the connection
}

void Mount::close_descriptors() {
  for (UniqueFd* fd : {&fuse_, &parent_, &fuse_device_}) {
    fd->reset();
  }
}

}  // namespace efs::daemon
