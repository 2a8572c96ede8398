// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/descriptors.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>

#include "intercept/far_descriptor.hpp"
#include "intercept/own_process.hpp"
#include "intercept/raw.hpp"
#include "intercept/settings.hpp"

namespace efs::intercept {
namespace {

constinit Descriptor descriptors[Descriptors::most];
constinit std::atomic<int> highest{-1};  // none above was ever used

// Rule 13.
constexpr int for_the_kernel = O_APPEND | O_DIRECT | O_SYNC | O_DSYNC | O_PATH;

struct Looked {
  bool open = false;
  bool regular = false;
  int flags = 0;
  File::Identity identity{};
};

// Asks the kernel alone: no request to the daemon.
Looked look(int fd) {
  struct statx status{};
  const long flags = raw(SYS_fcntl, fd, F_GETFL);
  if (flags < 0 || raw(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                       STATX_TYPE | STATX_INO, &status) != 0) {
    return {};
  }
  return {.open = true,
          .regular = S_ISREG(status.stx_mode) && status.stx_dev_major == 0,
          .flags = static_cast<int>(flags),
          .identity = {makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino}};
}

// True if anybody has a lock of fcntl(2) on the file, which may be this process.
bool is_locked(int fd) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  return raw(SYS_fcntl, fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// Moving the twin closes a descriptor, which drops the locks that the process has on the file: a
// thread that takes one meanwhile keeps the low number.
int open_twin(int fd) {
  if (is_locked(fd)) {
    return 0;
  }
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const long twin = raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOCTTY, 0);
  if (twin < 0) {
    return 0;
  }
  return is_locked(fd) ? static_cast<int>(twin) : move_far(static_cast<int>(twin));
}

// The program's limit of descriptors is for its own.
constexpr int most_twins = 64;
constinit std::atomic<int> twins{0};

void note_used(int fd) {
  int known = highest.load(std::memory_order_relaxed);
  while (known < fd && !highest.compare_exchange_weak(known, fd)) {
  }
}

}  // namespace

Descriptor* Descriptors::table() {
  return descriptors;
}

std::int64_t Descriptor::seek(int fd, std::int64_t offset, int whence) {
  for (;;) {
    std::uint64_t before = offset_.load(std::memory_order_relaxed);
    std::int64_t now = offset;
    if (whence == SEEK_CUR) {
      if (__builtin_add_overflow(static_cast<std::int64_t>(before & ~is_private), offset, &now)) {
        return -EINVAL;
      }
    } else if (whence != SEEK_SET) {
      now = raw(SYS_lseek, fd, offset, whence);
    }
    if ((before & is_private) == 0) {
      return raw(SYS_lseek, fd, offset, whence);
    }
    if (now < 0) {
      return whence == SEEK_CUR || whence == SEEK_SET ? -EINVAL : now;
    }
    if (offset_.compare_exchange_strong(before, static_cast<std::uint64_t>(now) | is_private)) {
      return now;
    }
  }
}

bool Descriptor::make_twin(int fd, const File::Identity& identity) {
  int none = 0;
  if (twin_.load() > 0) {
    return true;
  }
  if (!File::is_written_by_memory(fd) || twins.load() >= most_twins ||
      !twin_.compare_exchange_strong(none, -1)) {
    return false;
  }
  const int twin = open_twin(fd);
  twin_identity_ = identity;
  if (twin > 0) {
    twins.fetch_add(1);
  }
  int mine = -1;
  if (!twin_.compare_exchange_strong(mine, twin) && twin > 0) {
    twins.fetch_sub(1);  // the program has closed the descriptor meanwhile
    raw(SYS_close, twin);
    return false;
  }
  return twin > 0;
}

void Descriptor::close_twin() {
  const int twin = twin_.load() != 0 ? twin_.exchange(0) : 0;
  if (twin > 0) {
    twins.fetch_sub(1);
    if (look(twin).identity == twin_identity_) {
      raw(SYS_close, twin);
    }
  }
}

// Another thread may be in a call that uses the kernel's offset. Streams of the C library use the
// first three descriptors without a call of ours.
void Descriptor::take_offset(int fd) {
  if (__libc_single_threaded == 0 || fd <= 2) {
    return;
  }
  const long offset = raw(SYS_lseek, fd, 0, SEEK_CUR);
  if (offset >= 0) {
    offset_.store(static_cast<std::uint64_t>(offset) | is_private);
  }
}

// A mapping gains nothing for the first large requests, which weigh less. A file that cannot be had
// is tried again after twice the calls: whenever their weight passes a power of two.
File* Use::first_calls(int fd, Descriptor& descriptor, std::size_t bytes) {
  if ((descriptor.flags_.load(std::memory_order_relaxed) & Descriptor::left_alone) != 0) {
    return nullptr;
  }
  constexpr std::uint32_t small = 64, large = 1, most = std::uint32_t{1} << 30;
  const std::uint32_t weight = bytes < File::large ? small : large;
  const std::uint32_t before = descriptor.calls_.fetch_add(weight, std::memory_order_relaxed);
  const std::uint32_t after = before + weight;
  if (after < small * File::calls_before_mapping() ||
      std::bit_width(after) == std::bit_width(before) || !settings().serves) {
    return nullptr;
  }
  if (after > most) {
    descriptor.flags_.fetch_or(Descriptor::left_alone);
  }
  return own_process::is_here() ? adopt(fd, descriptor, after / small) : nullptr;
}

File* Use::adopt(int fd, Descriptor& descriptor, std::uint32_t calls) {
  note_used(fd);
  const Looked looked = look(fd);
  if (!looked.open) {
    return nullptr;  // another thread has closed it
  }
  const int access = looked.flags & O_ACCMODE;
  if (!looked.regular || (looked.flags & for_the_kernel) != 0 || access == O_ACCMODE) {
    descriptor.flags_.fetch_or(Descriptor::left_alone);
    return nullptr;
  }
  if (access == O_WRONLY && !descriptor.make_twin(fd, looked.identity)) {
    return nullptr;
  }
  const bool writes = access != O_RDONLY;
  File* file = File::adopt(descriptor.for_mapping(fd), looked.identity, writes);
  if (file == nullptr) {
    if (calls >= 8 * File::calls_before_mapping()) {
      descriptor.flags_.fetch_or(Descriptor::left_alone);
    }
    return nullptr;
  }
  const std::uint32_t before = descriptor.flags_.fetch_or(
      (access != O_WRONLY ? Descriptor::can_read : 0) | (writes ? Descriptor::can_write : 0));
  descriptor.tick_.store(tick_of(cycles()), std::memory_order_relaxed);
  File* none = nullptr;
  if (!descriptor.file_.compare_exchange_strong(none, file)) {
    file->release();  // another thread was first
    return none;
  }
  if ((before & Descriptor::made_here) != 0) {
    descriptor.take_offset(fd);
  }
  return file;
}

// Once a tick: is the descriptor still what it was, and is the daemon alive?
void Use::check(int fd) {
  file_->report_if_due(now_);
  const Looked looked = look(fd);
  const bool same = looked.regular && looked.identity == file_->identity();
  if (same && (looked.flags & for_the_kernel) == 0 && file_->is_served()) {
    descriptor_->tick_.store(tick_of(now_), std::memory_order_relaxed);
    return;
  }
  File* const mine = file_;
  file_ = nullptr;
  if (!own_process::is_here()) {
    mine->release();  // the entry is of the process whose memory this is
    return;
  }
  if (same) {
    Descriptors::share(fd);
  }
  File* expected = mine;
  if (descriptor_->file_.compare_exchange_strong(expected, nullptr)) {
    descriptor_->offset_.store(0);
    descriptor_->flags_.store(same ? Descriptor::left_alone : 0);
    descriptor_->calls_.store(0);
    mine->release();
  }
  mine->release();
}

void Descriptors::made(int fd) {
  Descriptor* descriptor = of(fd);
  if (descriptor != nullptr && !own_process::is_here()) {
    descriptor->tick_.store(0, std::memory_order_relaxed);  // its next call looks
  } else if (descriptor != nullptr) {
    forget(fd);
    descriptor->flags_.store(Descriptor::made_here, std::memory_order_relaxed);
    note_used(fd);
  }
}

void Descriptors::forget(int fd) {
  Descriptor* descriptor = of(fd);
  if (descriptor == nullptr) {
    return;
  }
  if (!own_process::is_here()) {
    descriptor->tick_.store(0, std::memory_order_relaxed);
    return;
  }
  File* file = descriptor->file_.load(std::memory_order_relaxed);
  if (file != nullptr) {
    file = descriptor->file_.exchange(nullptr);
  }
  if (file != nullptr) {
    if (descriptor->writes() && file->is_of(fd)) {
      file->stamp(fd);
    }
    file->release();
  }
  descriptor->close_twin();
  descriptor->offset_.store(0, std::memory_order_relaxed);
  descriptor->flags_.store(0, std::memory_order_relaxed);
  descriptor->calls_.store(0, std::memory_order_relaxed);
}

void Descriptors::forget_range(unsigned first, unsigned last) {
  const int end = highest.load();
  for (unsigned fd = first; end >= 0 && fd <= last && fd <= static_cast<unsigned>(end); ++fd) {
    share(static_cast<int>(fd));  // the call may fail
    forget(static_cast<int>(fd));
  }
  if (own_process::is_here()) {
    lose_twins(first, last);
    Mount::lose_range(first, last);
  }
}

// The program closes their numbers, too.
void Descriptors::lose_twins(unsigned first, unsigned last) {
  const int end = highest.load();
  for (int fd = 0; twins.load() != 0 && fd <= end; ++fd) {
    int twin = descriptors[fd].twin_.load();
    if (twin > 0 && static_cast<unsigned>(twin) >= first && static_cast<unsigned>(twin) <= last &&
        descriptors[fd].twin_.compare_exchange_strong(twin, 0)) {
      twins.fetch_sub(1);
    }
  }
}

void Descriptors::look_again() {
  const int end = highest.load();
  for (int fd = 0; fd <= end; ++fd) {
    Descriptor& descriptor = descriptors[fd];
    descriptor.tick_.store(0, std::memory_order_relaxed);
    descriptor.calls_.store(0, std::memory_order_relaxed);
    descriptor.flags_.fetch_and(~Descriptor::left_alone);
  }
}

void Descriptors::replace(int fd) {
  if (fd >= 0) {
    forget_range(static_cast<unsigned>(fd), static_cast<unsigned>(fd));
  }
}

// The kernel has the offset before anybody can ask it for it.
void Descriptors::share(int fd) {
  Descriptor* descriptor = of(fd);
  if (descriptor == nullptr) {
    return;
  }
  descriptor->flags_.fetch_and(~static_cast<std::uint32_t>(Descriptor::made_here));
  std::uint64_t offset = descriptor->offset_.load();
  if ((offset & Descriptor::is_private) != 0) {
    const File* file = descriptor->file_.load();
    if (file == nullptr || !file->is_of(fd)) {
      descriptor->offset_.store(0);  // it became another file
      return;
    }
  }
  while ((offset & Descriptor::is_private) != 0) {
    raw(SYS_lseek, fd, offset & ~Descriptor::is_private, SEEK_SET);
    if (descriptor->offset_.compare_exchange_strong(offset, 0)) {
      return;
    }
  }
}

void Descriptors::share_all() {
  const int end = highest.load();
  for (int fd = 0; fd <= end; ++fd) {
    share(fd);
  }
}

bool Descriptors::any_private() {
  const int end = highest.load();
  for (int fd = 0; fd <= end; ++fd) {
    if (descriptors[fd].has_offset()) {
      return true;
    }
  }
  return false;
}

void Descriptors::stamp(int fd) {
  const Descriptor* descriptor = of(fd);
  File* file = descriptor == nullptr ? nullptr : descriptor->file_.load();
  if (file == nullptr || !descriptor->writes() || !file->hold()) {
    return;
  }
  if (descriptor->file_.load() == file && file->is_of(fd)) {
    file->stamp(fd);
  }
  file->release();
}

void Descriptors::stamp_all() {
  const int end = highest.load();
  for (int fd = 0; fd <= end; ++fd) {
    stamp(fd);
  }
}

void Descriptors::after_fork() {
  File::after_fork([](const File& file) {
    std::uint32_t references = 0;
    const int end = highest.load();
    for (int fd = 0; fd <= end; ++fd) {
      references += descriptors[fd].file_.load() == &file ? 1 : 0;
    }
    return references;
  });
}

}  // namespace efs::intercept
