// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The table of the descriptors of the process. A descriptor is looked at when it has
// been used some times (rule 9), so that one of another process's making is found too. A close
// that passes by the library leaves a wrong entry: each is checked once a tick, and the call goes
// to the kernel then.

#include <atomic>
#include <cstdint>

#include "intercept/file.hpp"

namespace efs::intercept {

class Descriptor {
 public:
  bool reads() const { return (flags_.load(std::memory_order_relaxed) & can_read) != 0; }

  bool writes() const { return (flags_.load(std::memory_order_relaxed) & can_write) != 0; }

  /// The offset, if it is kept here and not by the kernel (rule 7): adds `bytes` to it and returns
  /// what it was; negative: the kernel has it, or it would overflow.
  std::int64_t advance(std::int64_t bytes) {
    std::uint64_t offset = offset_.load(std::memory_order_relaxed);
    while ((offset & is_private) != 0) {
      const std::uint64_t now = (offset & ~is_private) + static_cast<std::uint64_t>(bytes);
      if (now >= is_private) {
        return -1;
      }
      if (offset_.compare_exchange_weak(offset, now | is_private, std::memory_order_relaxed)) {
        return static_cast<std::int64_t>(offset & ~is_private);
      }
    }
    return -1;
  }

  /// A descriptor of the same file by which it can be mapped: `fd`, or one that is open for reading
  /// and writing where `fd` is open for writing only (rule 1). It lives until `fd` is closed,
  /// because closing it drops the locks of fcntl(2) that the process has on the file.
  int for_mapping(int fd) const {
    const int twin = twin_.load(std::memory_order_relaxed);
    return twin > 0 ? twin : fd;
  }

  bool has_offset() const { return (offset_.load(std::memory_order_relaxed) & is_private) != 0; }

  /// lseek(2) of an offset that is kept here. Negative: -errno.
  std::int64_t seek(int fd, std::int64_t offset, int whence);

 private:
  friend class Descriptors;
  friend class Use;

  static constexpr std::uint32_t can_read = 1, can_write = 2, made_here = 4, left_alone = 8;

  void take_offset(int fd);
  /// True if for_mapping() has a descriptor that maps for writing, opened now if need be.
  bool make_twin(int fd, const File::Identity& identity);
  void close_twin();

  static constexpr std::uint64_t is_private = std::uint64_t{1} << 63;

  std::atomic<File*> file_{nullptr};
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<std::uint32_t> flags_{0};
  std::atomic<std::uint64_t> tick_{0};    // of the last check
  std::atomic<std::uint64_t> offset_{0};  // with is_private, else nothing
  std::atomic<int> twin_{0};              // 0: none, -1: a thread opens it
  File::Identity twin_identity_{};        // constant while twin_ is above 0
};

/// The table. Thread-safe; no call takes a lock that a signal handler could wait for.
class Descriptors {
 public:
  static constexpr int most = 65536;

  static Descriptor* of(int fd) { return fd >= 0 && fd < most ? &table()[fd] : nullptr; }

  static bool has_file(int fd) {
    const Descriptor* descriptor = of(fd);
    return descriptor != nullptr && descriptor->file_.load(std::memory_order_relaxed) != nullptr;
  }

  /// open(2) has returned it: no other process has its offset.
  static void made(int fd);
  /// It is about to be closed, or replaced: nothing is known of it any more (rule 8). Moves mtime
  /// if it has to.
  static void forget(int fd);
  static void forget_range(unsigned first, unsigned last);
  /// Gives the offset back to the kernel, for good, before another process has the descriptor.
  static void share(int fd);
  static void share_all();
  static bool any_private();
  /// dup2(2) is about to close it, or fails and leaves it.
  static void replace(int fd);
  /// The flags of an open file have changed, of which several descriptors may be.
  static void look_again();
  /// At the end of the process: mtime of all files that were stored into.
  static void stamp_all();
  static void after_fork();

 private:
  static Descriptor* table();
  static void stamp(int fd);
  static void lose_twins(unsigned first, unsigned last);
};

/// A call in progress: the file cannot be unmapped. Without a file, the call is the kernel's.
class Use {
 public:
  /// `bytes`: of the call, which count for when the file is mapped.
  explicit Use(int fd, std::size_t bytes = 0) {
    Descriptor* descriptor = Descriptors::of(fd);
    if (descriptor == nullptr) {
      return;
    }
    File* file = descriptor->file_.load(std::memory_order_acquire);
    if (file == nullptr) {
      file = first_calls(fd, *descriptor, bytes);
      if (file == nullptr) {
        return;
      }
    }
    if (!file->hold()) {
      return;
    }
    if (descriptor->file_.load(std::memory_order_acquire) != file) {
      file->release();
      return;
    }
    descriptor_ = descriptor;
    file_ = file;
    now_ = cycles();
    if (descriptor->tick_.load(std::memory_order_relaxed) != tick_of(now_)) [[unlikely]] {
      check(fd);
    }
  }

  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  ~Use() {
    if (file_ != nullptr) {
      file_->release();
    }
  }

  explicit operator bool() const { return file_ != nullptr; }

  File& file() const { return *file_; }

  Descriptor& descriptor() const { return *descriptor_; }

  std::uint64_t tick() const { return tick_of(now_); }

 private:
  static File* first_calls(int fd, Descriptor& descriptor, std::size_t bytes);
  static File* adopt(int fd, Descriptor& descriptor, std::uint32_t calls);
  void check(int fd);

  File* file_ = nullptr;
  Descriptor* descriptor_ = nullptr;
  std::uint64_t now_ = 0;
};

}  // namespace efs::intercept
