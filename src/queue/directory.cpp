// SPDX-License-Identifier: BSD-3-Clause
#include "queue/directory.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>

namespace efs::queue {
namespace {

constexpr std::uint64_t mutex_byte = 0;
constexpr std::uint64_t ticket_base = std::uint64_t{1} << 40;

constexpr std::uint64_t slot_base(Direction direction) {
  return std::uint64_t{1} << (direction == Direction::in ? 20 : 21);
}

constexpr std::size_t largest_text = 64u << 10;
constexpr double first_pause = 0.015;  // seconds between two tries to lock the mutex
constexpr double tries_at_least = 40;  // within the caller's time limit

struct flock whole_byte(std::uint64_t offset, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = 1;
  return lock;
}

std::string read_text(int directory, const char* name) {
  const UniqueFd fd(::openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    return {};
  }
  std::string text(largest_text, '\0');
  const ssize_t n = ::pread(fd.get(), text.data(), text.size(), 0);
  if (n < 0) {
    text.clear(), errno = EIO;
  } else {
    text.resize(static_cast<std::size_t>(n)), errno = 0;
  }
  return text;
}

void pause_about(double seconds) {
  thread_local std::minstd_rand random(std::random_device{}());
  std::this_thread::sleep_for(
      std::chrono::duration<double>(seconds * std::uniform_real_distribution(0.3, 1.7)(random)));
}

Status check_owner(int directory, const std::string& path) {
  struct stat st{};
  if (::fstat(directory, &st) != 0) {
    return fail_errno("queue " + path);
  }
  if (st.st_uid != ::geteuid()) {
    return fail(EPERM, "queue " + path + " belongs to user " + std::to_string(st.st_uid) +
                           "; turns are taken as the user that it belongs to (now " +
                           std::to_string(::geteuid()) + ")");
  }
  if ((st.st_mode & 022) != 0) {
    return fail(EPERM, "queue " + path +
                           " can be written by others, which could fake a turn; chmod go-w it");
  }
  return {};
}

}  // namespace

Result<Directory> Directory::open(const std::string& path, bool to_hold, System system) {
  Directory made;
  made.path_ = path;
  made.system_ = std::move(system);
  made.directory_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!made.directory_) {
    return fail_errno("queue " + path);
  }
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (to_hold ? O_CREAT : 0);
  if (to_hold) {
    EFS_TRY(check_owner(made.directory_.get(), path));
    for (const char* name : {"in", "out"}) {
      if (::mkdirat(made.directory_.get(), name, 0755) != 0 && errno != EEXIST) {
        return fail_errno("queue " + path + "/" + name);
      }
    }
  }
  made.locks_.reset(::openat(made.directory_.get(), "locks", flags, 0600));
  if (!to_hold) {
    return made;
  }
  if (!made.locks_) {
    return fail_errno("queue " + path + "/locks");
  }
  // Test the locks here: a file system without them fails at open, not while a waiter needs them.
  struct flock probe = whole_byte(mutex_byte, F_WRLCK);
  if (made.system_.lock(made.locks_.get(), F_OFD_GETLK, probe) != 0) {
    return fail_errno("queue " + path + ": its file system keeps no locks");
  }
  return made;
}

Result<Settings> Directory::settings() const {
  auto settings = parse_settings(read_text(directory_.get(), "settings"));
  if (!settings) {
    return fail(EINVAL, path_ + "/settings: " + settings.error().what);
  }
  return settings;
}

State Directory::state() const {
  State state;
  const std::string text = read_text(directory_.get(), "state");
  unsigned long long next = 0;
  if (std::sscanf(text.c_str(), "next %llu in %lf out %lf", &next, &state.rate_in,
                  &state.rate_out) == 3) {
    state.next = next;
  } else {
    state = State{};  // torn write: the caller inspects the tickets too
  }
  return state;
}

void Directory::save(const State& state) const {
  const UniqueFd fd(
      ::openat(directory_.get(), "state", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  char text[128];
  const int n =
      std::snprintf(text, sizeof text, "next %20llu in %20.0f out %20.0f\n",
                    static_cast<unsigned long long>(state.next), state.rate_in, state.rate_out);
  if (fd) {
    (void)!::pwrite(fd.get(), text, static_cast<std::size_t>(n), 0);
  }
}

bool Directory::lock_byte(std::uint64_t offset, short type) const {
  struct flock lock = whole_byte(offset, type);
  return locks_ && system_.lock(locks_.get(), F_OFD_SETLK, lock) == 0;
}

bool Directory::byte_is_locked(std::uint64_t offset) const {
  struct flock lock = whole_byte(offset, F_WRLCK);
  // On an error, assume that the lock is held: then no ticket is removed, and no slot has two
  // holders.
  return !locks_ || system_.lock(locks_.get(), F_OFD_GETLK, lock) != 0 || lock.l_type != F_UNLCK;
}

Status Directory::with_mutex(const std::function<Status()>& what, double patience) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience);
  for (double pause = first_pause; !lock_byte(mutex_byte, F_WRLCK);
       pause = std::min(1.5 * pause, patience / tries_at_least)) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
      return fail_errno("queue " + path_ + "/locks");
    }
    if (std::chrono::steady_clock::now() >= until) {
      return fail(EBUSY, "queue " + path_ + ": its mutex is held for long");
    }
    pause_about(pause);
  }
  Status done = what();
  lock_byte(mutex_byte, F_UNLCK);
  return done;
}

bool Directory::lock_ticket(std::uint64_t number) const {
  return lock_byte(ticket_base + number, F_WRLCK);
}

bool Directory::lock_slot(Direction direction, unsigned slot) const {
  return lock_byte(slot_base(direction) + slot, F_WRLCK);
}

void Directory::unlock_slot(Direction direction, unsigned slot) const {
  lock_byte(slot_base(direction) + slot, F_UNLCK);
}

bool Directory::is_alive(std::uint64_t number) const {
  return byte_is_locked(ticket_base + number);
}

bool Directory::slot_is_held(Direction direction, unsigned slot) const {
  return byte_is_locked(slot_base(direction) + slot);
}

std::vector<Entry> Directory::list(Direction direction) const {
  std::vector<Entry> entries;
  const int fd = ::openat(directory_.get(), name_of(direction),
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return entries;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  while (const dirent* found = stream ? ::readdir(stream.get()) : nullptr) {
    const std::string_view name = found->d_name;
    if (name.empty() || (name[0] != 'w' && name[0] != 'h')) {
      continue;
    }
    Entry entry{.holds = name[0] == 'h',
                .name = std::string(name_of(direction)) + "/" + std::string(name)};
    const auto [end, problem] =
        std::from_chars(name.data() + 1, name.data() + name.size(), entry.number);
    if (problem == std::errc{} && end == name.data() + name.size()) {
      entries.push_back(std::move(entry));
    }
  }
  std::ranges::sort(entries, {}, &Entry::number);
  return entries;
}

std::optional<Ticket> Directory::read(const Entry& entry) const {
  auto ticket = decode(read_text(directory_.get(), entry.name.c_str()));
  if (!ticket || ticket->number != entry.number) {
    return std::nullopt;
  }
  return ticket;
}

double Directory::silence(const Entry& entry, Nanoseconds now) const {
  struct stat st{};
  if (::fstatat(directory_.get(), entry.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return 0;
  }
  return static_cast<double>(now - to_ns(st.st_mtim)) / 1e9;
}

void Directory::remove(const std::string& name) const {
  ::unlinkat(directory_.get(), name.c_str(), 0);
}

}  // namespace efs::queue
