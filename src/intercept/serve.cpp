// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/serve.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "intercept/copy.hpp"
#include "intercept/descriptors.hpp"
#include "intercept/raw.hpp"
#include "intercept/settings.hpp"
#include "intercept/statistics.hpp"

namespace efs::intercept {
namespace {

// Rule 12: the kernel stores as fast from here on, and does not fill the cache.
constexpr std::size_t too_long_to_store = std::size_t{1} << 20;

bool copy_out(const Buffers& buffers, const char* from) {
  for (std::size_t i = 0; i < buffers.count; ++i) {
    if (!copy(buffers.first[i].iov_base, from, buffers.first[i].iov_len)) {
      return false;
    }
    from += buffers.first[i].iov_len;
  }
  return true;
}

bool copy_in(char* to, const Buffers& buffers) {
  for (std::size_t i = 0; i < buffers.count; ++i) {
    if (!copy(to, buffers.first[i].iov_base, buffers.first[i].iov_len)) {
      return false;
    }
    to += buffers.first[i].iov_len;
  }
  return true;
}

// For a call that takes the kernel's offset.
void share_if_private(int fd) {
  const Descriptor* descriptor = Descriptors::of(fd);
  if (descriptor != nullptr && descriptor->has_offset()) {
    Descriptors::share(fd);
  }
}

ssize_t as_result(long result) {
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

ssize_t at_offset(int fd, const Buffers& buffers, std::int64_t offset, const KernelCalls& kernel) {
  const iovec& first = *buffers.first;
  return as_result(kernel.is_vector
                       ? raw(kernel.at_offset, fd, buffers.first, buffers.count, offset, 0)
                       : raw(kernel.at_offset, fd, first.iov_base, first.iov_len, offset));
}

ssize_t in_place(int fd, const Buffers& buffers, const KernelCalls& kernel) {
  const iovec& first = *buffers.first;
  return as_result(kernel.is_vector ? raw(kernel.in_place, fd, buffers.first, buffers.count)
                                    : raw(kernel.in_place, fd, first.iov_base, first.iov_len));
}

// A write in between makes a difference that is none: it is looked at three times.
bool is_as_kernel_says(int fd, const Buffers& buffers, std::int64_t offset) {
  char said[4096];
  for (std::size_t i = 0; i < buffers.count; ++i) {
    const char* had = static_cast<const char*>(buffers.first[i].iov_base);
    for (std::size_t done = 0; done < buffers.first[i].iov_len;) {
      const std::size_t left = buffers.first[i].iov_len - done;
      const std::size_t part = left < sizeof said ? left : sizeof said;
      if (raw(SYS_pread64, fd, said, part, offset) != static_cast<long>(part) ||
          memcmp(said, had + done, part) != 0) {
        return false;
      }
      done += part;
      offset += static_cast<std::int64_t>(part);
    }
  }
  return true;
}

bool serve_read(const Use& use, int fd, const Buffers& buffers, std::int64_t offset) {
  File& file = use.file();
  const char* from = file.at(use.descriptor().for_mapping(fd), static_cast<std::uint64_t>(offset),
                             buffers.bytes, false);
  if (from == nullptr || !copy_out(buffers, from)) {
    return false;
  }
  if (settings().verifies) {
    bool same = false;
    for (int i = 0; i < 3 && !same; ++i) {
      same = is_as_kernel_says(fd, buffers, offset);
      if (!same) {
        copy_out(buffers, from);
      }
    }
    if (!same) {
      statistics::differed(fd, offset, buffers.bytes);
    }
  }
  file.count_call();
  add(file.counts().reads, 1);
  add(file.counts().read_bytes, buffers.bytes);
  return true;
}

bool serve_write(const Use& use, int fd, const Buffers& buffers, std::int64_t offset) {
  File& file = use.file();
  if (buffers.bytes >= too_long_to_store || file.is_first_of_tick(use.tick())) {
    return false;
  }
  char* to = file.at(use.descriptor().for_mapping(fd), static_cast<std::uint64_t>(offset),
                     buffers.bytes, true);
  if (to == nullptr || !copy_in(to, buffers)) {
    return false;
  }
  file.stored();
  file.count_call();
  add(file.counts().writes, 1);
  add(file.counts().written_bytes, buffers.bytes);
  return true;
}

ssize_t write_by_kernel(const Use& use, int fd, const Buffers& buffers, std::int64_t offset,
                        const KernelCalls& kernel) {
  File& file = use.file();
  const std::uint64_t epoch = file.epoch();
  file.kernel_writes(use.tick(), epoch);
  add(file.counts().kernel_calls, 1);
  const ssize_t written = at_offset(fd, buffers, offset, kernel);
  if (written > 0) {
    file.extend(fd, epoch, static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(written));
  }
  return written;
}

// The offset of a call that uses the descriptor's own, which has moved by `bytes`. If the kernel
// has it, lseek(2) adds and returns at once, so that two calls never get the same bytes. Negative:
// the call is the kernel's as it is.
std::int64_t take_offset(const Use& use, int fd, std::size_t bytes) {
  const auto moves = static_cast<std::int64_t>(bytes);
  if (const std::int64_t offset = use.descriptor().advance(moves); offset >= 0) {
    return offset;
  }
  if (use.descriptor().has_offset()) {
    Descriptors::share(fd);  // it would overflow: the kernel has the error
    return -1;
  }
  if (!use.file().expects(bytes)) {
    return -1;
  }
  const long after = raw(SYS_lseek, fd, moves, SEEK_CUR);
  return after < 0 ? -1 : after - moves;
}

// The kernel served less than the offset has moved by.
void give_back(const Use& use, int fd, std::size_t moved, ssize_t served) {
  const auto used = served < 0 ? std::int64_t{0} : static_cast<std::int64_t>(served);
  const std::int64_t back = used - static_cast<std::int64_t>(moved);
  if (back != 0 && use.descriptor().advance(back) < 0) {
    raw(SYS_lseek, fd, back, SEEK_CUR);
  }
}

}  // namespace

ssize_t read_at(int fd, const Buffers& buffers, std::int64_t offset, const KernelCalls& kernel) {
  if (const Use use(fd, buffers.bytes);
      use && buffers.bytes != 0 && offset >= 0 && use.descriptor().reads()) {
    if (serve_read(use, fd, buffers, offset)) {
      return static_cast<ssize_t>(buffers.bytes);
    }
    add(use.file().counts().kernel_calls, 1);
    return at_offset(fd, buffers, offset, kernel);
  }
  return kernel.next_at_offset(fd, buffers.request, offset);
}

ssize_t write_at(int fd, const Buffers& buffers, std::int64_t offset, const KernelCalls& kernel) {
  if (const Use use(fd, buffers.bytes);
      use && buffers.bytes != 0 && offset >= 0 && use.descriptor().writes()) {
    return serve_write(use, fd, buffers, offset)
               ? static_cast<ssize_t>(buffers.bytes)
               : write_by_kernel(use, fd, buffers, offset, kernel);
  }
  return kernel.next_at_offset(fd, buffers.request, offset);
}

ssize_t read_next(int fd, const Buffers& buffers, const KernelCalls& kernel) {
  if (const Use use(fd, buffers.bytes); use && buffers.bytes != 0 && use.descriptor().reads()) {
    const std::int64_t offset = take_offset(use, fd, buffers.bytes);
    if (offset >= 0 && serve_read(use, fd, buffers, offset)) {
      return static_cast<ssize_t>(buffers.bytes);
    }
    add(use.file().counts().kernel_calls, 1);
    if (offset < 0) {
      return in_place(fd, buffers, kernel);
    }
    const ssize_t got = at_offset(fd, buffers, offset, kernel);
    give_back(use, fd, buffers.bytes, got);
    return got;
  }
  share_if_private(fd);
  return kernel.next_in_place(fd, buffers.request);
}

ssize_t write_next(int fd, const Buffers& buffers, const KernelCalls& kernel) {
  if (const Use use(fd, buffers.bytes); use && buffers.bytes != 0 && use.descriptor().writes()) {
    const std::int64_t offset = take_offset(use, fd, buffers.bytes);
    if (offset < 0) {
      use.file().kernel_writes(use.tick(), use.file().epoch());
      add(use.file().counts().kernel_calls, 1);
      return in_place(fd, buffers, kernel);
    }
    if (serve_write(use, fd, buffers, offset)) {
      return static_cast<ssize_t>(buffers.bytes);
    }
    const ssize_t written = write_by_kernel(use, fd, buffers, offset, kernel);
    give_back(use, fd, buffers.bytes, written);
    return written;
  }
  share_if_private(fd);
  return kernel.next_in_place(fd, buffers.request);
}

}  // namespace efs::intercept
