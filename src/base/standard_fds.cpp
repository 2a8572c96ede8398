#include "base/standard_fds.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace efs {

void fill_standard_fds() {
  // In order, so that each open gets the number that is meant; not close-on-exec, as none of them is.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDONLY);
}

}  // namespace efs
