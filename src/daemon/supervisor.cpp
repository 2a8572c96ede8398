// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/supervisor.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "base/log.hpp"
#include "base/memory_bound.hpp"
#include "base/mounts.hpp"
#include "base/socket.hpp"
#include "base/user.hpp"
#include "daemon/as_root.hpp"
#include "fuse/backing.hpp"

namespace efs::daemon {

namespace {

// older versions of linux/fuse.h lack these (kernel 6.9, include/uapi/linux/fuse.h)
struct BackingMap {
  std::int32_t fd;
  std::uint32_t flags;
  std::uint64_t padding;
};

constexpr unsigned long backing_open = _IOW(229, 1, BackingMap);
constexpr unsigned long backing_close = _IOW(229, 2, std::uint32_t);

bool may_be_lock_of(uid_t user, const struct stat& file) {
  return (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode)) && file.st_uid == user;
}

Message answer_error(int code, const std::string& text = {}) {
  Message message;
  message.error = code;
  set_text(message, text);
  return message;
}

Message answer_of(const Status& done) {
  return done ? Message{} : answer_error(done.error().code, describe(done.error()));
}

}  // namespace

Status Supervisor::serve(int channel, WorkerWatch* watch) {
  Status status;
  while (true) {
    if (watch != nullptr && !watch->wait(channel)) {
      break;
    }
    auto received = receive(channel);
    if (!received) {
      status = std::unexpected(received.error());
    }
    if (!received || !*received) {
      break;
    }
    UniqueFd fd;
    const auto reply = answer_if_asked(**received, fd);
    if (!reply) {
      continue;
    }
    const int passed = fd.get();
    if (status = send_message(channel, *reply, fd ? std::span(&passed, 1) : std::span<const int>());
        !status) {
      break;
    }
  }
  return status;
}

// If there is no memory for a message, waits for some: the mount depends on this process.
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
    if (asked == Ask::close_backing) {
      close_backing(received.message);
      return std::nullopt;
    }
    reply = answer(received, fd);
  } catch (const std::exception& problem) {
    if (asked == Ask::close_backing) {
      return std::nullopt;
    }
    reply.error = ENOMEM;
    set_text(reply, problem.what());
  }
  reply.ask = asked;
  return reply;
}

Supervisor::ShutdownState Supervisor::left() const {
  if (init_.empty()) {
    return ShutdownState::nothing;
  }
  return mount_.is_mounted() ? ShutdownState::mount : ShutdownState::results;
}

Message Supervisor::answer(Received& received, UniqueFd& fd) {
  switch (received.message.ask) {
    case Ask::memory_store: return memory_store(received.message, fd);
    case Ask::unpromised: return unpromised();
    case Ask::store_at: return store_at(received.first());
    case Ask::hold_store: return hold_store(received.first(), fd);
    case Ask::keep_store: return keep_store_ = received.message.number != 0, Message{};
    case Ask::open_backing: return open_backing(received);
    case Ask::keep_init: return keep_init(received.message);
    case Ask::resume: return resume(fd);
    case Ask::inherited: return inherited(fd);
    case Ask::progress: return progress_ = true, Message{};
    default: return answer_about_mount(received, fd);
  }
}

Message Supervisor::answer_about_mount(Received& received, UniqueFd& fd) {
  switch (received.message.ask) {
    case Ask::drop_dead_mount: return drop_dead(received.message, received.first());
    case Ask::check_mount: return answer_of(mount_.check(received.first()));
    case Ask::mount: return mount(received.message, received.first(), fd);
    case Ask::unmount: return unmount(received.message);
    case Ask::abort: clean_up(); return {};
    default: return answer_error(EINVAL, "unknown request");
  }
}

Message Supervisor::memory_store(const Message& ask, UniqueFd& fd) {
  if (!options_.privileged) {
    return answer_error(EPERM, "a private tmpfs needs root");
  }
  const AsRoot root_rights;
  auto given = memory_.give({.number = ask.count,
                             .bytes = ask.number,
                             .access_times = static_cast<AccessTimes>(ask.numbers[1]),
                             .huge_pages = ask.numbers[2] == 0,
                             .must_be_there = ask.numbers[0] != 0});
  if (!given) {
    return answer_error(given.error().code, describe(given.error()));
  }
  store_devices_.insert(given->device);
  fd = std::move(given->root);
  Message reply;
  reply.number = given->left ? 1 : 0;
  return reply;
}

// Only root can read the stores of all users.
Message Supervisor::unpromised() const {
  std::optional<AsRoot> root;
  if (options_.privileged) {
    root.emplace();
  }
  Message reply;
  reply.number = unpromised_memory();
  return reply;
}

// The supervisor cannot verify the location of a store outside its tmpfs. It checks only that the
// file belongs to the user.
Message Supervisor::store_at(const UniqueFd& file) {
  struct stat st{};
  if (!file || ::fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != options_.uid) {
    return answer_error(EPERM, "not a file of this user's");
  }
  // a successor names the same device
  if (mount_.is_mounted() && !store_devices_.contains(st.st_dev)) {
    return answer_error(EPERM, "the store is set up already");
  }
  if (store_devices_.size() >= 2UL * control::most_stores) {
    return answer_error(EINVAL, "too many stores");
  }
  store_devices_.insert(st.st_dev);
  return {};
}

// A lock (flock(2)) belongs to an open file description. A successor therefore gets the descriptor
// that its predecessor locked.
Message Supervisor::hold_store(UniqueFd lock, UniqueFd& fd) {
  struct stat st{};
  if (!lock || ::fstat(lock.get(), &st) != 0 || !may_be_lock_of(options_.uid, st)) {
    return answer_error(EPERM, "not a lock of this user's");
  }
  auto held = std::find_if(store_locks_.begin(), store_locks_.end(), [&](const UniqueFd& other) {
    struct stat its{};
    return ::fstat(other.get(), &its) == 0 && its.st_ino == st.st_ino && its.st_dev == st.st_dev;
  });
  if (held == store_locks_.end()) {
    if (store_locks_.size() >= 4UL * control::most_stores) {
      return answer_error(EINVAL, "too many stores");
    }
    held = store_locks_.insert(held, std::move(lock));
  }
  fd.reset(::fcntl(held->get(), F_DUPFD_CLOEXEC, 0));
  return fd ? Message{} : answer_error(errno, "the lock of the store");
}

// A dead mount of this user would prevent the next mount at this point.
Message Supervisor::drop_dead(const Message& ask, const UniqueFd& parent) {
  std::optional<AsRoot> root;
  if (options_.privileged) {
    root.emplace();
  }
  const Status dropped = efs::drop_dead_mount(
      parent.get(), std::string(ask.text.data(), ::strnlen(ask.text.data(), ask.text.size())),
      options_.uid, {.unserved = options_.source});
  return answer_of(dropped);
}

Message Supervisor::mount(const Message& ask, const UniqueFd& point, UniqueFd& fd) {
  if (const Status made = mount_.make(point, ask.number, ask.text.data()); !made) {
    return answer_of(made);
  }
  fd.reset(::fcntl(mount_.fuse().get(), F_DUPFD_CLOEXEC, 0));
  return {};
}

Message Supervisor::unmount(const Message& ask) {
  const Status unmounted = mount_.unmount();
  if (unmounted) {
    stop_is_unusual_ = ask.number != 0;
  }
  return answer_of(unmounted);
}

// The kernel opens the file again, with the rights of the registering process, for every program
// that opens it in the mount. So the file must belong to the user and must be on the store's
// device. See also drop_privilege(), which limits the supervisor's file rights to the user's.
bool Supervisor::is_door(const struct stat& file) const {
  struct stat door{};
  return options_.door >= 0 && ::fstat(options_.door, &door) == 0 && door.st_dev == file.st_dev &&
         door.st_ino == file.st_ino;
}

int Supervisor::open_backing(const UniqueFd& container) {
  struct stat st{};
  if (!container || !mount_.fuse() || ::fstat(container.get(), &st) != 0) {
    return -EBADF;
  }
  const bool door = is_door(st);
  // this user has no such container
  if (!S_ISREG(st.st_mode) || (st.st_uid != options_.uid && !door)) {
    return -EPERM;
  }
  // this store has no such container
  if (!store_devices_.empty() && !door && !store_devices_.contains(st.st_dev)) {
    return -EXDEV;
  }
  // Register a read-only descriptor. The kernel opens the container again for each program with the
  // requested mode. Registered files stay open until the connection ends. A container that is open
  // for writing therefore shows that a living program has it open.
  const UniqueFd reading(
      ::open(("/proc/self/fd/" + std::to_string(container.get())).c_str(), O_RDONLY | O_CLOEXEC));
  if (!reading) {
    return -errno;
  }
  BackingMap map{.fd = reading.get(), .flags = 0, .padding = 0};
  const int id = ::ioctl(mount_.fuse().get(), backing_open, &map);
  return id < 0 ? -errno : id;
}

Message Supervisor::open_backing(const Received& ask) {
  Message reply;
  for (const UniqueFd& container : ask.fds) {
    const int id = open_backing(container);
    if (id > 0) {
      backings_[id] = ask.message.inodes.at(reply.count);
    }
    reply.numbers.at(reply.count++) = id;
  }
  return reply;
}

// An unknown id is a mistake of the worker and harms no other process.
void Supervisor::close_backing(const Message& ask) {
  if (!mount_.fuse()) {
    return;
  }
  for (const auto id : std::span(ask.numbers).first(ask.count)) {
    if (backings_.erase(id) == 0) {
      continue;
    }
    auto number = static_cast<std::uint32_t>(id);
    (void)::ioctl(mount_.fuse().get(), backing_close, &number);
  }
}

Message Supervisor::keep_init(const Message& ask) {
  if (ask.number > ask.text.size()) {
    return answer_error(EINVAL, "INIT request too long");
  }
  init_.assign(ask.text.data(), ask.number);
  return {};
}

Message Supervisor::resume(UniqueFd& fd) const {
  if (!mount_.is_mounted() || !mount_.fuse() || init_.empty()) {
    return answer_error(ENOTCONN, "not mounted");
  }
  fd.reset(::fcntl(mount_.fuse().get(), F_DUPFD_CLOEXEC, 0));
  Message reply;
  reply.number = init_.size();
  std::copy(init_.begin(), init_.end(), reply.text.begin());
  return reply;
}

Message Supervisor::inherited(UniqueFd& fd) const {
  std::vector<fuse::InheritedBacking> all;
  all.reserve(backings_.size());
  for (const auto& [id, ino] : backings_) {
    all.push_back({.ino = ino, .id = id});
  }
  fd.reset(::memfd_create("efs-backings", MFD_CLOEXEC));
  const std::size_t bytes = all.size() * sizeof(fuse::InheritedBacking);
  if (!fd || ::pwrite(fd.get(), all.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return answer_error(errno, "memory file");
  }
  Message reply;
  reply.number = all.size();
  return reply;
}

void Supervisor::close_descriptors() {
  mount_.close_descriptors();
  options_.instance.reset();
  store_locks_.clear();
}

}  // namespace efs::daemon
