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

// The lock may be free well before the process is gone, which gives memory back; and the next
// instance may take it at once. A moment is waited for that, for what the process had open it still
// has: file systems that are to be unmounted next.
bool EndWatch::wait(std::optional<std::chrono::milliseconds> longest) const {
  using Clock = std::chrono::steady_clock;
  constexpr int between_looks = 5, longest_exit = 500;  // ms
  if (!directory_) {
    return true;
  }
  const auto tired_at = longest ? Clock::now() + *longest : Clock::time_point::max();
  // without a descriptor a pause
  pollfd end{.fd = supervisor_.get(), .events = POLLIN, .revents = 0};
  bool ended = false;
  while (!ended && ::flock(directory_.get(), LOCK_SH | LOCK_NB) != 0 &&
         (errno == EWOULDBLOCK || errno == EINTR)) {
    if (Clock::now() >= tired_at) {
      return false;
    }
    ended = ::poll(&end, 1, between_looks) > 0;
  }
  ::flock(directory_.get(), LOCK_UN);  // whoever comes next finds it free
  if (!ended && supervisor_) {
    (void)::poll(&end, 1, longest_exit);
  }
  return true;
}

}  // namespace efs::control
