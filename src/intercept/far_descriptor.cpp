// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/far_descriptor.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include "intercept/raw.hpp"

namespace efs::intercept {

int move_far(int fd) {
  rlimit limit{};
  raw(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit);
  const long from = limit.rlim_cur > 1024 ? 1000 : static_cast<long>(limit.rlim_cur) - 16;
  const long moved = from > fd ? raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from) : -1;
  if (moved < 0) {
    return fd;
  }
  raw(SYS_close, fd);
  return static_cast<int>(moved);
}

}  // namespace efs::intercept
