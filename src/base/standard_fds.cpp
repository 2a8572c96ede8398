#include "base/standard_fds.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace efs {

void fill_standard_fds() {
  int fd = 0;
  // the lowest that is free; not close-on-exec, as none of the three is
  while (fd >= 0 && fd <= 2) {
    fd = ::open("/dev/null", O_RDWR);
  }
  if (fd > 2) {
    ::close(fd);
  }
}

}  // namespace efs
