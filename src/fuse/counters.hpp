// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The daemon's counters. Passthrough reads and writes never reach the daemon, so no counter
// includes them.

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace efs::fuse {

/// The kinds of the kernel's requests (libfuse's names).
enum class Operation : std::uint8_t {
  lookup,
  forget,
  getattr,
  setattr,
  readlink,
  mknod,
  mkdir,
  unlink,
  rmdir,
  symlink,
  rename,
  link,
  open,
  read,
  write,
  flush,
  release,
  fsync,
  opendir,
  readdir,
  releasedir,
  fsyncdir,
  statfs,
  setxattr,
  getxattr,
  listxattr,
  removexattr,
  access,
  create,
  tmpfile,
  fallocate,
  readdirplus,
  copy_file_range,
  lseek,
  ioctl,
  other
};
inline constexpr std::size_t operation_count = static_cast<std::size_t>(Operation::other) + 1;
const char* name_of(Operation operation);

/// Figures of one kind of request. The atomics are relaxed: each figure is correct, but the figures
/// may be of different moments.
struct alignas(64) OperationCounters {
  static constexpr std::size_t buckets = 24;

  std::atomic<std::uint64_t> count{0}, errors{0}, nanoseconds{0}, longest{0},
      shortest{~std::uint64_t{0}};
  /// [0]: below 1 us. [i]: at least 2^(i-1) us and below 2^i us. The last bucket has no upper
  /// bound.
  std::array<std::atomic<std::uint64_t>, buckets> histogram{};

  void add(std::uint64_t duration, bool failed) {
    constexpr auto relaxed = std::memory_order_relaxed;
    count.fetch_add(1, relaxed);
    if (failed) {
      errors.fetch_add(1, relaxed);
    }
    nanoseconds.fetch_add(duration, relaxed);
    const auto width = static_cast<std::size_t>(std::bit_width(duration / 1000));
    histogram[width < buckets ? width : buckets - 1].fetch_add(1, relaxed);
    for (auto seen = longest.load(relaxed);
         duration > seen && !longest.compare_exchange_weak(seen, duration, relaxed);) {
    }
    for (auto seen = shortest.load(relaxed);
         duration < seen && !shortest.compare_exchange_weak(seen, duration, relaxed);) {
    }
  }
};

struct Counters {
  std::atomic<std::uint64_t> opens{0}, passthrough_opens{0}, read_bytes{0}, written_bytes{0};
  std::atomic<std::uint64_t> joined_callers{0};  // see RequestLoop::Options
  std::array<OperationCounters, operation_count> operations;

  OperationCounters& of(Operation operation) {
    return operations[static_cast<std::size_t>(operation)];
  }

  const OperationCounters& of(Operation operation) const {
    return operations[static_cast<std::size_t>(operation)];
  }

  std::uint64_t requests() const;
  std::uint64_t errors() const;
};

}  // namespace efs::fuse
