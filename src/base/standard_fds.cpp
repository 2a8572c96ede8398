// SPDX-License-Identifier: BSD-3-Clause
#include "base/standard_fds.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace efs {

void fill_standard_fds() {
  int fd = 0;
  // open() returns the lowest free number; without close-on-exec, as for standard descriptors
  while (fd >= 0 && fd <= 2) {
    fd = ::open("/dev/null", O_RDWR);
  }
  if (fd > 2) {
    ::close(fd);
  }
}

}  // namespace efs
