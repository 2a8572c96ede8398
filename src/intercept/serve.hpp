// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads and writes: by memory where they can be (rule 2), else by the kernel. Each returns what the
// system call returns, or -1 with errno.

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace efs::intercept {

/// The kernel's calls that stand for a call of the program. `at_offset` leaves the descriptor's
/// offset alone.
struct KernelCalls {
  // The C library's: points of cancellation. For descriptors of which nothing is known.
  ssize_t (*next_at_offset)(int fd, const void* request, std::int64_t offset);
  ssize_t (*next_in_place)(int fd, const void* request);
  // The numbers of the same. A thread that is cancelled would never end its use of the file.
  long at_offset;
  long in_place;
  bool is_vector;
};

/// The program's buffers.
struct Buffers {
  const iovec* first;
  std::size_t count;
  std::size_t bytes;    // of all; 0: the call is the kernel's
  const void* request;  // for KernelCalls
};

ssize_t read_at(int fd, const Buffers& buffers, std::int64_t offset, const KernelCalls& kernel);
ssize_t write_at(int fd, const Buffers& buffers, std::int64_t offset, const KernelCalls& kernel);
ssize_t read_next(int fd, const Buffers& buffers, const KernelCalls& kernel);
ssize_t write_next(int fd, const Buffers& buffers, const KernelCalls& kernel);

}  // namespace efs::intercept
