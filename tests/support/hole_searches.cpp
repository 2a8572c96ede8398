// SPDX-License-Identifier: BSD-3-Clause
#include "support/hole_searches.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<std::uint64_t> searches{0};

}  // namespace

// The kernel's call has no wrapper but this one, so no function of a library is needed.
extern "C" off_t lseek(int fd, off_t offset, int whence) noexcept {
  if (whence == SEEK_DATA || whence == SEEK_HOLE) {
    ++searches;
  }
  return ::syscall(SYS_lseek, fd, offset, whence);
}

namespace efs::test {

std::uint64_t hole_searches() {
  return searches;
}

}  // namespace efs::test
