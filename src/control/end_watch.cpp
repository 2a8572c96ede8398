// SPDX-License-Identifier: BSD-3-Clause
#include "control/end_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace efs::control {

EndWatch::EndWatch(const std::string& directory, pid_t supervisor)
    : directory_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)),
      supervisor_(supervisor > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, supervisor, 0U))
                                 : -1) {}

// The supervisor may release the lock well before its process ends, because freeing memory takes
// time. The next instance may acquire the lock at once. So this waits a moment longer for the
// process: until it ends, its open files keep file systems busy that the caller will unmount.
bool EndWatch::wait(std::optional<std::chrono::milliseconds> longest) const {
  using Clock = std::chrono::steady_clock;
  constexpr int between_looks = 5, longest_exit = 500;  // ms
  if (!directory_) {
    return true;
  }
  const auto tired_at = longest ? Clock::now() + *longest : Clock::time_point::max();
  // with no pidfd, poll() only pauses
  pollfd end{.fd = supervisor_.get(), .events = POLLIN, .revents = 0};
  bool ended = false;
  while (!ended && ::flock(directory_.get(), LOCK_SH | LOCK_NB) != 0 &&
         (errno == EWOULDBLOCK || errno == EINTR)) {
    if (Clock::now() >= tired_at) {
      return false;
    }
    ended = ::poll(&end, 1, between_looks) > 0;
  }
  ::flock(directory_.get(), LOCK_UN);  // for the next instance
  if (!ended && supervisor_) {
    (void)::poll(&end, 1, longest_exit);
  }
  return true;
}

}  // namespace efs::control
