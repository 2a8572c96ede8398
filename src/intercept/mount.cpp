// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/mount.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "intercept/copy.hpp"
#include "intercept/far_descriptor.hpp"
#include "intercept/own_process.hpp"
#include "intercept/raw.hpp"
#include "intercept/statistics.hpp"

namespace efs::intercept {
namespace {

constexpr std::size_t most_mounts = 16;
constinit Mount mounts[most_mounts];
// ProcLines has no buffer on the stack, which may be small. One thread at a time uses it.
constinit char lines_buffer[8192];

// Reads a file of /proc line by line, without the heap.
class ProcLines {
 public:
  explicit ProcLines(const char* path)
      : fd_(static_cast<int>(raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0))) {}

  ProcLines(const ProcLines&) = delete;
  ProcLines& operator=(const ProcLines&) = delete;

  ~ProcLines() {
    if (fd_ >= 0) {
      raw(SYS_close, fd_);
    }
  }

  /// The next line, ended with a zero; null: none. A line longer than the buffer ends the reading.
  char* next() {
    for (;;) {
      if (char* end = static_cast<char*>(memchr(buffer_ + begin_, '\n', filled_ - begin_))) {
        char* line = buffer_ + begin_;
        *end = '\0';
        begin_ = static_cast<std::size_t>(end - buffer_) + 1;
        return line;
      }
      memmove(buffer_, buffer_ + begin_, filled_ - begin_);
      filled_ -= begin_;
      begin_ = 0;
      const long got =
          fd_ < 0 ? 0 : raw(SYS_read, fd_, buffer_ + filled_, sizeof buffer_ - filled_);
      if (got <= 0) {
        return nullptr;
      }
      filled_ += static_cast<std::size_t>(got);
    }
  }

 private:
  int fd_;
  char (&buffer_)[sizeof lines_buffer] = lines_buffer;
  std::size_t begin_ = 0, filled_ = 0;
};

// mountinfo writes these characters as \ and three octal digits.
void unescape(char* text) {
  char* to = text;
  for (const char* from = text; *from != '\0';) {
    if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] != '\0' && from[3] != '\0') {
      *to++ = static_cast<char>(((from[1] - '0') << 6) | ((from[2] - '0') << 3) | (from[3] - '0'));
      from += 4;
    } else {
      *to++ = *from++;
    }
  }
  *to = '\0';
}

// The mount point of a device: proc_pid_mountinfo(5), third and fifth field. The last one counts,
// since it may lie over others.
bool find_mount_point(std::uint64_t device, char* path, std::size_t room) {
  char wanted[32];
  snprintf(wanted, sizeof wanted, "%u:%u", major(device), minor(device));
  bool found = false;
  ProcLines lines("/proc/self/mountinfo");
  while (char* line = lines.next()) {
    char* fields[5] = {};
    char* rest = line;
    for (char*& field : fields) {
      field = strsep(&rest, " ");
    }
    if (fields[4] != nullptr && strcmp(fields[2], wanted) == 0 && strlen(fields[4]) < room) {
      strcpy(path, fields[4]);
      found = true;
    }
  }
  unescape(path);
  return found;
}

}  // namespace

// -errno if it fails. The name may lead to another mount, which hides this one.
int Mount::open_path() const {
  constexpr int how = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const long opened = raw(SYS_openat, AT_FDCWD, path_, how, 0);
  if (opened < 0) {
    return static_cast<int>(opened);
  }
  const int fd = move_far(static_cast<int>(opened));
  if (!is_door(fd)) {
    raw(SYS_close, fd);
    return -ENOENT;
  }
  return fd;
}

// A close that passed by the library may have given the number to another file. Asks the kernel
// alone: a dead mount has a door, too.
bool Mount::is_door(int fd) const {
  struct statx status{};
  return fd >= 0 &&
         raw(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_SIZE,
             &status) == 0 &&
         makedev(status.stx_dev_major, status.stx_dev_minor) == device_ &&
         status.stx_ino == door_inode && status.stx_size >= sizeof(DoorTable);
}

bool Mount::open_door() {
  if (path_[0] == '\0') {
    const std::size_t room = sizeof path_ - sizeof door_name - 1;
    if (!find_mount_point(device_, path_, room)) {
      return false;
    }
    strcat(path_, "/");
    strcat(path_, door_name);
  }
  const int door = open_path();
  if (door < 0) {
    return false;
  }
  const long mapped = raw(SYS_mmap, nullptr, sizeof(DoorTable), PROT_READ, MAP_SHARED, door, 0);
  if (mapped < 0 && mapped > -4096) {
    raw(SYS_close, door);
    return false;
  }
  table_ = reinterpret_cast<const DoorTable*>(mapped);
  door_ = door;
  std::uint64_t head[2] = {};
  if (!copy(head, table_, sizeof head) || head[0] != door_magic || head[1] != door_slots) {
    raw(SYS_munmap, mapped, sizeof(DoorTable));
    raw(SYS_close, door);
    return false;
  }
  return true;
}

Mount* Mount::of(std::uint64_t device) {
  Mount* free = nullptr;
  for (Mount& mount : mounts) {
    std::uint32_t uses = mount.uses_.load();
    while (uses != 0 && mount.device_ == device) {
      if (mount.uses_.compare_exchange_weak(uses, uses + 1)) {
        return &mount;
      }
    }
    if (uses == 0 && (free == nullptr || mount.device_ == device)) {
      free = &mount;
    }
  }
  if (free == nullptr) {
    return nullptr;
  }
  if (free->device_ != device) {
    free->path_[0] = '\0';
  }
  free->device_ = device;
  free->dead_ = false;
  free->foreign_ = false;
  if (!free->open_door()) {
    free->path_[0] = '\0';
    return nullptr;
  }
  free->uses_.store(1);
  return free;
}

void Mount::leave() {
  if (uses_.load() == 1) {
    report();
  }
  // another thread may open the door anew as soon as no use is left
  const DoorTable* table = table_;
  const int door = is_door(door_) ? door_.load() : -1;
  if (uses_.fetch_sub(1) == 1) {
    raw(SYS_munmap, table, sizeof(DoorTable));
    if (door >= 0) {
      raw(SYS_close, door);
    }
  }
}

// The number may be a file of the program by now, or the session that of the parent.
bool Mount::renew_door() {
  const bool is_mine = is_door(door_);
  if (is_mine && !foreign_.load()) {
    return true;
  }
  const int opened = open_path();
  if (opened < 0) {
    return is_mine && opened != -ENOTCONN;
  }
  const int before = door_.exchange(opened);
  foreign_.store(false);
  if (is_mine) {
    raw(SYS_close, before);
  }
  return true;
}

// Without a door the library does not learn that the daemon has died.
void Mount::report() {
  if (!own_process::is_here() || reporting_.exchange(true, std::memory_order_acquire)) {
    return;
  }
  DoorCounts said{.reads = counts.reads.exchange(0),
                  .read_bytes = counts.read_bytes.exchange(0),
                  .writes = counts.writes.exchange(0),
                  .written_bytes = counts.written_bytes.exchange(0),
                  .kernel_calls = counts.kernel_calls.exchange(0),
                  .mapped_files = mapped_files.load()};
  statistics::add(said);
  if (!renew_door() || raw(SYS_ioctl, door_.load(), door_report, &said) == -ENOTCONN) {
    dead_.store(true, std::memory_order_relaxed);
  }
  reporting_.store(false, std::memory_order_release);
}

void Mount::report_if_due(std::uint64_t now) {
  constexpr std::uint64_t period = std::uint64_t{1} << 26;
  std::uint64_t last = reported_.load(std::memory_order_relaxed);
  if (now - last < period || !reported_.compare_exchange_strong(last, now)) {
    return;
  }
  if (last != 0) {
    report();
  }
}

bool Mount::has_door(int fd) {
  for (const Mount& mount : mounts) {
    if (mount.uses_.load() != 0 && mount.door_.load() == fd && mount.is_door(fd)) {
      return true;
    }
  }
  return false;
}

std::uint64_t Mount::epoch(std::uint64_t inode) const {
  std::uint64_t value = 0;
  return copy(&value, &table_->epochs[door_slot(inode)], sizeof value) ? value : no_epoch;
}

void Mount::lose_range(unsigned first, unsigned last) {
  for (Mount& mount : mounts) {
    int door = mount.door_.load();
    if (mount.uses_.load() != 0 && door >= 0 && static_cast<unsigned>(door) >= first &&
        static_cast<unsigned>(door) <= last) {
      mount.door_.compare_exchange_strong(door, -1);
    }
  }
}

void Mount::report_all() {
  for (Mount& mount : mounts) {
    std::uint32_t uses = mount.uses_.load();
    while (uses != 0 && !mount.uses_.compare_exchange_weak(uses, uses + 1)) {
    }
    if (uses != 0) {
      mount.report();
      mount.leave();
    }
  }
}

void Mount::after_fork() {
  for (Mount& mount : mounts) {
    mount.reporting_ = false;
    mount.foreign_ = mount.uses_.load() != 0;
    mount.counts.clear();
  }
}

}  // namespace efs::intercept
