#include "daemon/supervisor.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/log.hpp"
#include "base/mounts.hpp"
#include "base/user.hpp"
#include "config/mount_options.hpp"

extern char** environ;

namespace efs::daemon {

using config::mount_dev, config::mount_noatime, config::mount_noexec, config::mount_readonly, config::mount_suid;

namespace {

// linux/fuse.h of older systems does not have these (kernel 6.9, include/uapi/linux/fuse.h).
struct BackingMap {
  std::int32_t fd;
  std::uint32_t flags;
  std::uint64_t padding;
};
constexpr unsigned long backing_open = _IOW(229, 1, BackingMap);
constexpr unsigned long backing_close = _IOW(229, 2, std::uint32_t);

Message answer_error(int code, const std::string& text = {}) {
  Message message;
  message.error = code;
  set_text(message, text);
  return message;
}

std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

std::string target_of(int fd) {
  std::array<char, 4096> target{};
  const ssize_t n = ::readlink(path_of(fd).c_str(), target.data(), target.size() - 1);
  return n > 0 ? std::string(target.data(), static_cast<std::size_t>(n)) : std::string();
}

// Root's file rights for a scope: for calls that name only descriptors and directories of ours.
class AsRoot {
 public:
  AsRoot() : user_(::geteuid()) { (void)!::seteuid(0); }
  ~AsRoot() { (void)!::seteuid(user_); set_effective(); }
  AsRoot(const AsRoot&) = delete;
  AsRoot& operator=(const AsRoot&) = delete;

 private:
  void set_effective() const { (void)limit_effective(user_); }
  uid_t user_;
};

int run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (::posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return 127;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

unsigned long kernel_flags(std::uint64_t flags, bool root) {
  unsigned long result = 0;
  if (!root || (flags & mount_suid) == 0) result |= MS_NOSUID;  // only root may have set-id programs of root's
  if (!root || (flags & mount_dev) == 0) result |= MS_NODEV;
  if ((flags & mount_noexec) != 0) result |= MS_NOEXEC;
  if ((flags & mount_noatime) != 0) result |= MS_NOATIME;
  if ((flags & mount_readonly) != 0) result |= MS_RDONLY;
  return result;
}

}  // namespace

Status Supervisor::serve(int channel) {
  Status status;
  while (true) {
    auto received = receive_message(channel);
    if (!received) status = std::unexpected(received.error());
    if (!received || !*received) break;
    UniqueFd fd;
    Message reply = answer(**received, fd);
    reply.ask = (*received)->message.ask;
    if (status = send_message(channel, reply, fd.get()); !status) break;
  }
  clean_up();
  return status;
}

Message Supervisor::answer(Received& received, UniqueFd& fd) {
  switch (received.message.ask) {
    case Ask::memory_store: return memory_store(received.message, fd);
    case Ask::keep_store: return keep_store_ = received.message.number != 0, Message{};
    case Ask::drop_dead_mount: return drop_dead(received.message, received.fd);
    case Ask::check_mount: return check_mount(received.fd);
    case Ask::mount: return mount(received.message, received.fd, fd);
    case Ask::unmount: return unmount();
    case Ask::abort: return clean_up(), Message{};
    case Ask::open_backing: return open_backing(received.fd);
    case Ask::close_backing: return close_backing(received.message);
  }
  return answer_error(EINVAL, "unknown request");
}

// What an earlier supervisor mounted: a user can mount nothing here, and cannot move a mount point.
bool Supervisor::has_store_mounted() const {
  struct stat store {}, instance {};
  struct statfs fs {};
  return ::fstat(options_.store.get(), &store) == 0 && ::fstat(options_.instance.get(), &instance) == 0 && ::fstatfs(options_.store.get(), &fs) == 0 && fs.f_type == TMPFS_MAGIC && store.st_dev != instance.st_dev;
}

Message Supervisor::memory_store(const Message& ask, UniqueFd& fd) {
  if (!options_.privileged) return answer_error(EPERM, "a private tmpfs needs root");
  if (store_mounted_) return answer_error(EBUSY, "the store is mounted");
  const AsRoot root_rights;
  const bool left = has_store_mounted();
  const std::string common = "size=" + std::to_string(ask.number) + ",nr_inodes=0,mode=0700,uid=" + std::to_string(options_.uid) + ",gid=" + std::to_string(options_.gid);
  const std::string point = path_of(options_.store.get());
  // Huge pages double the speed of first touch and are given to files that can fill them only.
  if (!left && ::mount("efs-store", point.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, (common + ",huge=within_size").c_str()) != 0 &&
      ::mount("efs-store", point.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, common.c_str()) != 0)
    return answer_error(errno, std::string("cannot mount a tmpfs for the store: ") + std::strerror(errno));
  store_mounted_ = true;
  // Reopened through its name in the instance's directory: the old descriptor still shows the directory below.
  UniqueFd root(::openat(options_.instance.get(), "store", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  struct statfs fs {};
  if (!root || ::fstat(root.get(), &st) != 0 || ::fstatfs(root.get(), &fs) != 0 || fs.f_type != TMPFS_MAGIC)
    return answer_error(EIO, "the store's tmpfs cannot be opened");
  store_device_ = st.st_dev;
  fd = std::move(root);
  Message reply;
  reply.number = left ? 1 : 0;
  return reply;
}

// A mount of this user's that lost its daemon would keep the next from mounting there.
Message Supervisor::drop_dead(const Message& ask, const UniqueFd& parent) {
  std::optional<AsRoot> root;
  if (options_.privileged) root.emplace();
  const Status dropped = efs::drop_dead_mount(parent.get(), std::string(ask.text.data(), ::strnlen(ask.text.data(), ask.text.size())), options_.uid);
  return dropped ? Message{} : answer_error(dropped.error().code, describe(dropped.error()));
}

// The rule of fusermount: a user mounts over a directory that is his own.
Message Supervisor::check_mount(const UniqueFd& point) {
  struct stat st {};
  if (!point || ::fstat(point.get(), &st) != 0 || !S_ISDIR(st.st_mode)) return answer_error(ENOTDIR, "the mount point is no directory");
  if (options_.uid != 0 && st.st_uid != options_.uid) return answer_error(EPERM, "the mount point belongs to somebody else");
  if (!options_.privileged) return {};
  if (!options_.fuse_device) return answer_error(ENODEV, "/dev/fuse cannot be opened: is FUSE in this kernel?");
  return {};
}

Message Supervisor::mount(const Message& ask, UniqueFd& point, UniqueFd& fd) {
  if (const Message refused = check_mount(point); refused.error != 0) return refused;
  if (!mount_point_.empty()) return answer_error(EBUSY, "already mounted");
  if (!options_.privileged) return mount_with_helper(ask, point, fd);
  const AsRoot root;
  const std::string where = target_of(point.get());
  UniqueFd parent(::openat(point.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::string data = "fd=" + std::to_string(options_.fuse_device.get()) + ",rootmode=40000,user_id=" + std::to_string(options_.uid) +
                           ",group_id=" + std::to_string(options_.gid) + ",default_permissions,allow_other";
  if (!parent || ::mount(ask.text.data(), path_of(point.get()).c_str(), "fuse.efs", kernel_flags(ask.number, options_.uid == 0), data.c_str()) != 0)
    return answer_error(errno, std::string("mount: ") + std::strerror(errno));
  mount_point_ = where;
  parent_ = std::move(parent);
  struct stat st {};
  // The device is known without asking the file system, which nobody serves yet: statx does not call it.
  struct statx sx {};
  if (::statx(parent_.get(), name_in_parent().c_str(), AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &sx) == 0) st.st_dev = makedev(sx.stx_dev_major, sx.stx_dev_minor);
  device_ = st.st_dev;
  fuse_ = std::move(options_.fuse_device);
  fd.reset(::fcntl(fuse_.get(), F_DUPFD_CLOEXEC, 0));
  return {};
}

std::string Supervisor::name_in_parent() const { return mount_point_.substr(mount_point_.rfind('/') + 1); }

// A mount point cannot be renamed while it is mounted, and its parent is held by descriptor; this catches what is
// left: somebody unmounted ours, and something else lies there now.
bool Supervisor::still_ours() const {
  struct statx sx {};
  if (::statx(parent_.get(), name_in_parent().c_str(), AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &sx) != 0) return false;
  return makedev(sx.stx_dev_major, sx.stx_dev_minor) == device_;
}

// Without privilege: fusermount3, which is set-uid root, mounts and passes the descriptor through _FUSE_COMMFD.
Message Supervisor::mount_with_helper(const Message& ask, const UniqueFd& point, UniqueFd& fd) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) != 0) return answer_error(errno, "socketpair");
  UniqueFd ours(pair[0]), theirs(pair[1]);
  ::fcntl(ours.get(), F_SETFD, FD_CLOEXEC);
  const std::string where = target_of(point.get());
  std::string options = "default_permissions,subtype=efs,fsname=" + std::string(ask.text.data());
  if ((ask.number & mount_noexec) != 0) options += ",noexec";
  if ((ask.number & mount_noatime) != 0) options += ",noatime";
  if ((ask.number & mount_readonly) != 0) options += ",ro";
  ::setenv("_FUSE_COMMFD", std::to_string(theirs.get()).c_str(), 1);
  const int code = run({"fusermount3", "-o", options, "--", where});
  ::unsetenv("_FUSE_COMMFD");
  theirs.reset();
  if (code != 0) return answer_error(EPERM, "fusermount3 could not mount (is /dev/fuse open to you, is fuse3 installed?)");
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  if (::recvmsg(ours.get(), &header, MSG_CMSG_CLOEXEC) <= 0 || CMSG_FIRSTHDR(&header) == nullptr) return answer_error(EIO, "fusermount3 sent no descriptor");
  int received = -1;
  std::memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof received);
  fuse_.reset(received);
  mount_point_ = where;
  fd.reset(::fcntl(received, F_DUPFD_CLOEXEC, 0));
  return {};
}

Message Supervisor::unmount() {
  if (mount_point_.empty()) return {};
  int code = 0;
  if (options_.privileged) {
    const AsRoot root;
    // Never lazily: that nobody holds a file any more is what makes it safe to read the containers.
    if (still_ours() && ::umount2((path_of(parent_.get()) + "/" + name_in_parent()).c_str(), UMOUNT_NOFOLLOW) != 0) code = errno;
    if (code == EINVAL) code = 0;  // somebody else has unmounted it
  } else if (run({"fusermount3", "-u", "-q", "--", mount_point_}) != 0) {
    pollfd gone{.fd = fuse_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&gone, 1, 0) < 0 || (gone.revents & POLLERR) == 0) code = EBUSY;
  }
  if (code != 0) return answer_error(code, "unmount: " + std::string(std::strerror(code)));
  mount_point_.clear();
  fuse_.reset();
  return {};
}

// The kernel reopens the file with the rights of the registrar for whoever opens it in the mount. So it must be a
// file that the user owns, on the store's own device; see also drop_privilege(), which leaves us no more file
// rights than the user has.
Message Supervisor::open_backing(const UniqueFd& container) {
  struct stat st {};
  if (!container || !fuse_ || ::fstat(container.get(), &st) != 0) return answer_error(EBADF);
  if (!S_ISREG(st.st_mode) || st.st_uid != options_.uid) return answer_error(EPERM, "not a container of this user");
  if (store_device_ && st.st_dev != *store_device_) return answer_error(EXDEV, "not a container of this store");
  BackingMap map{.fd = container.get(), .flags = 0, .padding = 0};
  const int id = ::ioctl(fuse_.get(), backing_open, &map);
  if (id < 0) return answer_error(errno);
  Message reply;
  reply.number = static_cast<std::uint64_t>(id);
  return reply;
}

Message Supervisor::close_backing(const Message& ask) {
  auto id = static_cast<std::uint32_t>(ask.number);
  if (!fuse_) return {};
  return ::ioctl(fuse_.get(), backing_close, &id) == 0 ? Message{} : answer_error(errno);
}

// Runs when nobody serves the mount any more: the worker is gone, or says that it cannot. A dead mount would hang every program that
// touches it, so it goes at any price; programs that hold it get an error, not a hang.
void Supervisor::clean_up() {
  if (!mount_point_.empty()) {
    if (options_.privileged) {
      const AsRoot root;
      if (still_ours() && ::umount2((path_of(parent_.get()) + "/" + name_in_parent()).c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) log::warn("event=unmount_failed mount={} reason=\"{}\"", mount_point_, std::strerror(errno));
    } else {
      run({"fusermount3", "-u", "-z", "-q", "--", mount_point_});
    }
    log::warn("event=mount_without_server mount={} action=unmounted", mount_point_);
    mount_point_.clear();
  }
  fuse_.reset();  // the last descriptor: the connection ends here
}

}  // namespace efs::daemon
