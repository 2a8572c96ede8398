// SPDX-License-Identifier: BSD-3-Clause
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

// If there is no descriptor for signals, stops go unnoticed, but everything else works.
WorkerWatch::WorkerWatch(pid_t worker, int life, std::chrono::milliseconds longest)
    : worker_(worker), life_(life), longest_(longest) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  changes_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  look();  // the worker may have been stopped before SIGCHLD was blocked
}

bool WorkerWatch::wait(int channel) {
  while (true) {
    std::array<pollfd, 3> lines{{{.fd = channel, .events = POLLIN, .revents = 0},
                                 {.fd = changes_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = life_, .events = POLLIN, .revents = 0}}};
    if (::poll(lines.data(), lines.size(), milliseconds_left()) < 0 && errno != EINTR) {
      return true;
    }
    if (lines[1].revents != 0) {
      look();
    }
    if (stopped_ && Clock::now() >= *stopped_ + longest_) {
      wake();
    }
    if (lines[0].revents != 0) {
      return true;
    }
    if (lines[2].revents != 0) {
      return false;
    }
  }
}

std::optional<int> WorkerWatch::reap(std::chrono::milliseconds longest) {
  std::optional<int> status;
  std::optional<Clock::time_point> killed;
  while (reap_or_wait(status, killed, longest)) {
  }
  return status;
}

// Returns whether the caller must wait longer.
bool WorkerWatch::reap_or_wait(std::optional<int>& status, std::optional<Clock::time_point>& killed,
                               std::chrono::milliseconds longest) {
  int ended = 0;
  signalfd_siginfo signal{};
  while (::read(changes_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
  }
  const bool may_wait = life_ < 0 || !changes_;
  const pid_t gone = ::waitpid(worker_, &ended, may_wait ? 0 : WNOHANG);
  if (gone < 0 && errno == EINTR) {
    return true;
  }
  if (gone != 0) {
    return status = ended, false;
  }
  std::array<pollfd, 2> lines{{{.fd = changes_.get(), .events = POLLIN, .revents = 0},
                               {.fd = killed ? -1 : life_, .events = POLLIN, .revents = 0}}};
  const auto left =
      killed
          ? std::chrono::ceil<std::chrono::milliseconds>(*killed + longest - Clock::now()).count()
          : -1;
  if (killed && left <= 0) {
    return false;
  }
  (void)::poll(lines.data(), lines.size(), static_cast<int>(left));
  if (lines[1].revents != 0) {
    killed = Clock::now();
  }
  return true;
}

// One signal may stand for several changes, so check the state of the child.
void WorkerWatch::look() {
  signalfd_siginfo signal{};
  while (::read(changes_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
  }
  while (true) {
    siginfo_t change{};
    if (::waitid(P_PID, static_cast<id_t>(worker_), &change, WSTOPPED | WCONTINUED | WNOHANG) !=
            0 ||
        change.si_pid == 0) {
      return;
    }
    if (change.si_code == CLD_CONTINUED) {
      stopped_.reset();
    } else if (!stopped_) {
      stopped_ = Clock::now();
    }
  }
}

void WorkerWatch::wake() {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - *stopped_).count();
  stopped_.reset();
  log::warn("event=worker_continued pid={} seconds={} reason=\"another process had stopped it\"",
            worker_, seconds);
  ::kill(worker_, SIGCONT);
}

int WorkerWatch::milliseconds_left() const {
  if (!stopped_) {
    return -1;
  }
  return static_cast<int>(std::max<std::int64_t>(
      0,
      std::chrono::ceil<std::chrono::milliseconds>(*stopped_ + longest_ - Clock::now()).count()));
}

}  // namespace efs::daemon
