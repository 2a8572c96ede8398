#include "daemon/supervisor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "base/log.hpp"
#include "base/mounts.hpp"
#include "base/socket.hpp"
#include "base/user.hpp"
#include "config/mount_options.hpp"
#include "fuse/backing.hpp"

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

// Has the directory's name another mount by now? (What mounts there is not asked anything.)
bool is_covered(int point, int parent, const std::string& name) {
  struct statx ours {}, now {};
  constexpr int flags = AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;
  if (::statx(point, "", flags | AT_EMPTY_PATH, STATX_MNT_ID, &ours) != 0 || ::statx(parent, name.c_str(), flags, STATX_MNT_ID, &now) != 0) return false;
  return (ours.stx_mask & now.stx_mask & STATX_MNT_ID) != 0 && ours.stx_mnt_id != now.stx_mnt_id;
}

}  // namespace

Status Supervisor::serve(int channel, WorkerWatch* watch) {
  Status status;
  while (true) {
    if (watch != nullptr) watch->wait(channel);
    auto received = receive(channel);
    if (!received) status = std::unexpected(received.error());
    if (!received || !*received) break;
    UniqueFd fd;
    const auto reply = answer_if_asked(**received, fd);
    if (!reply) continue;
    const int passed = fd.get();
    if (status = send_message(channel, *reply, fd ? std::span(&passed, 1) : std::span<const int>()); !status) break;
  }
  return status;
}

// Without memory for a message it waits for some: the mount hangs on this process.
Result<std::optional<Received>> Supervisor::receive(int channel) {
  while (true) {
    try {
      return receive_message(channel);
    } catch (const std::bad_alloc&) {
      ::usleep(20'000);
    }
  }
}

std::optional<Message> Supervisor::answer_if_asked(Received& received, UniqueFd& fd) {
  const Ask asked = received.message.ask;
  Message reply;
  try {
    if (one_way(received.message)) return std::nullopt;
    reply = answer(received, fd);
  } catch (const std::exception& problem) {
    if (asked == Ask::close_backing || asked == Ask::keep_to_daemon) return std::nullopt;
    reply.error = ENOMEM;
    set_text(reply, problem.what());
  }
  reply.ask = asked;
  return reply;
}

// Messages that nobody waits for.
bool Supervisor::one_way(const Message& ask) {
  if (ask.ask == Ask::close_backing) return close_backing(ask), true;
  if (ask.ask != Ask::keep_to_daemon) return false;
  if (ask.count != 0) on_daemon_.insert(ask.number);
  else on_daemon_.erase(ask.number);
  return true;
}

Supervisor::Left Supervisor::left() const {
  if (init_.empty()) return Left::nothing;
  return mount_point_.empty() ? Left::results : Left::mount;
}

Message Supervisor::answer(Received& received, UniqueFd& fd) {
  UniqueFd point;
  switch (received.message.ask) {
    case Ask::memory_store: return memory_store(received.message, fd);
    case Ask::store_at: return store_at(received.first());
    case Ask::hold_store: return hold_store(received.first(), fd);
    case Ask::keep_store: return keep_store_ = received.message.number != 0, Message{};
    case Ask::drop_dead_mount: return drop_dead(received.message, received.first());
    case Ask::check_mount: return check_mount(received.first());
    case Ask::mount: return point = received.first(), mount(received.message, point, fd);
    case Ask::unmount: return unmount();
    case Ask::abort: return clean_up(), Message{};
    case Ask::open_backing: return open_backing(received);
    case Ask::keep_init: return keep_init(received.message);
    case Ask::resume: return resume(fd);
    case Ask::inherited: return inherited(fd);
    case Ask::progress: return progress_ = true, Message{};
    case Ask::close_backing:
    case Ask::keep_to_daemon: break;
  }
  return answer_error(EINVAL, "unknown request");
}

Message Supervisor::memory_store(const Message& ask, UniqueFd& fd) {
  if (!options_.privileged) return answer_error(EPERM, "a private tmpfs needs root");
  const AsRoot root_rights;
  auto given = memory_.give({.number = ask.count, .bytes = ask.number, .noatime = std::strcmp(ask.text.data(), "noatime") == 0, .must_be_there = ask.numbers[0] != 0});
  if (!given) return answer_error(given.error().code, describe(given.error()));
  store_devices_.insert(given->device);
  fd = std::move(given->root);
  Message reply;
  reply.number = given->left ? 1 : 0;
  return reply;
}

// It is the worker's word where a store lies that is on no tmpfs of ours; the file at least is the user's own.
Message Supervisor::store_at(const UniqueFd& file) {
  struct stat st {};
  if (!file || ::fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != options_.uid) return answer_error(EPERM, "not a file of this user's");
  if (!mount_point_.empty() && !store_devices_.contains(st.st_dev)) return answer_error(EPERM, "the store is set up already");  // a successor names the same
  if (store_devices_.size() >= 2UL * control::most_stores) return answer_error(EINVAL, "too many stores");
  store_devices_.insert(st.st_dev);
  return {};
}

// A lock (flock(2)) belongs to what open(2) returned: a successor goes on with what its predecessor locked.
Message Supervisor::hold_store(UniqueFd lock, UniqueFd& fd) {
  struct stat st {};
  if (!lock || ::fstat(lock.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != options_.uid) return answer_error(EPERM, "not a lock of this user's");
  auto held = std::find_if(store_locks_.begin(), store_locks_.end(), [&](const UniqueFd& other) {
    struct stat its {};
    return ::fstat(other.get(), &its) == 0 && its.st_ino == st.st_ino && its.st_dev == st.st_dev;
  });
  if (held == store_locks_.end()) {
    if (store_locks_.size() >= 2UL * control::most_stores) return answer_error(EINVAL, "too many stores");
    held = store_locks_.insert(held, std::move(lock));
  }
  fd.reset(::fcntl(held->get(), F_DUPFD_CLOEXEC, 0));
  return fd ? Message{} : answer_error(errno, "the lock of the store");
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
  if (parent && is_covered(point.get(), parent.get(), where.substr(where.rfind('/') + 1))) return answer_error(EBUSY, "something has been mounted there meanwhile");
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
  std::byte byte{};
  auto answer = receive_with_descriptors(ours.get(), {&byte, 1}, 1);
  if (!answer || answer->fds.empty()) return answer_error(EIO, "fusermount3 sent no descriptor");
  UniqueFd received = std::move(answer->fds.front());
  fuse_ = std::move(received);
  mount_point_ = where;
  fd.reset(::fcntl(fuse_.get(), F_DUPFD_CLOEXEC, 0));
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
int Supervisor::open_backing(const UniqueFd& container) {
  struct stat st {};
  if (!container || !fuse_ || ::fstat(container.get(), &st) != 0) return -EBADF;
  if (!S_ISREG(st.st_mode) || st.st_uid != options_.uid) return -EPERM;  // not a container of this user
  if (!store_devices_.empty() && !store_devices_.contains(st.st_dev)) return -EXDEV;  // not a container of this store
  // For reading only. Programs get what they ask for, as the kernel opens it anew for each; and a container that is open for
  // writing is known to be so by a program, for as long as it lives: registered ones stay open until the connection is forgotten.
  const UniqueFd reading(::open(path_of(container.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!reading) return -errno;
  BackingMap map{.fd = reading.get(), .flags = 0, .padding = 0};
  const int id = ::ioctl(fuse_.get(), backing_open, &map);
  return id < 0 ? -errno : id;
}

Message Supervisor::open_backing(const Received& ask) {
  Message reply;
  for (const UniqueFd& container : ask.fds) {
    const int id = open_backing(container);
    if (id > 0) backings_[id] = ask.message.inodes.at(reply.count);
    reply.numbers.at(reply.count++) = id;
  }
  return reply;
}

// An id that the kernel does not know is the worker's mistake and harms nobody.
void Supervisor::close_backing(const Message& ask) {
  if (!fuse_) return;
  for (const auto id : std::span(ask.numbers).first(ask.count)) {
    if (backings_.erase(id) == 0) continue;
    auto number = static_cast<std::uint32_t>(id);
    (void)::ioctl(fuse_.get(), backing_close, &number);
  }
}

Message Supervisor::keep_init(const Message& ask) {
  if (ask.number > ask.text.size()) return answer_error(EINVAL, "INIT request too long");
  init_.assign(ask.text.data(), ask.number);
  return {};
}

Message Supervisor::resume(UniqueFd& fd) const {
  if (mount_point_.empty() || !fuse_ || init_.empty()) return answer_error(ENOTCONN, "not mounted");
  fd.reset(::fcntl(fuse_.get(), F_DUPFD_CLOEXEC, 0));
  Message reply;
  reply.number = init_.size();
  std::copy(init_.begin(), init_.end(), reply.text.begin());
  return reply;
}

Message Supervisor::inherited(UniqueFd& fd) const {
  std::vector<fuse::InheritedBacking> all;
  all.reserve(backings_.size() + on_daemon_.size());
  for (const auto& [id, ino] : backings_) all.push_back({.ino = ino, .id = id});
  for (const auto ino : on_daemon_) all.push_back({.ino = ino, .id = 0});
  fd.reset(::memfd_create("efs-backings", MFD_CLOEXEC));
  const std::size_t bytes = all.size() * sizeof(fuse::InheritedBacking);
  if (!fd || ::pwrite(fd.get(), all.data(), bytes, 0) != static_cast<ssize_t>(bytes)) return answer_error(errno, "memory file");
  Message reply;
  reply.number = all.size();
  return reply;
}

void Supervisor::close_descriptors() {
  for (UniqueFd* fd : {&fuse_, &parent_, &options_.fuse_device, &options_.instance}) fd->reset();
  store_locks_.clear();
}

// A dead mount would hang every program that touches it.
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
