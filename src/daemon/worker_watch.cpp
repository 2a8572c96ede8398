#include "daemon/worker_watch.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.hpp"

namespace efs::daemon {

// Without a descriptor nothing is noticed, and all else goes on.
WorkerWatch::WorkerWatch(pid_t worker, std::chrono::milliseconds longest) : worker_(worker), longest_(longest) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  changes_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  look();  // it may have been stopped before the signal was kept
}

void WorkerWatch::wait(int channel) {
  while (true) {
    std::array<pollfd, 2> lines{{{.fd = channel, .events = POLLIN, .revents = 0}, {.fd = changes_.get(), .events = POLLIN, .revents = 0}}};
    if (::poll(lines.data(), lines.size(), milliseconds_left()) < 0 && errno != EINTR) return;
    if (lines[1].revents != 0) look();
    if (stopped_ && Clock::now() >= *stopped_ + longest_) wake();
    if (lines[0].revents != 0) return;
  }
}

// One signal may stand for several changes: the state of the child counts.
void WorkerWatch::look() {
  signalfd_siginfo signal{};
  while (::read(changes_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {}
  while (true) {
    siginfo_t change{};
    if (::waitid(P_PID, static_cast<id_t>(worker_), &change, WSTOPPED | WCONTINUED | WNOHANG) != 0 || change.si_pid == 0) return;
    if (change.si_code == CLD_CONTINUED) stopped_.reset();
    else if (!stopped_) stopped_ = Clock::now();
  }
}

void WorkerWatch::wake() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - *stopped_).count();
  stopped_.reset();
  log::warn("event=worker_continued pid={} seconds={} reason=\"somebody had stopped it\"", worker_, seconds);
  ::kill(worker_, SIGCONT);
}

int WorkerWatch::milliseconds_left() const {
  if (!stopped_) return -1;
  return static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(*stopped_ + longest_ - Clock::now()).count()));
}

}  // namespace efs::daemon
