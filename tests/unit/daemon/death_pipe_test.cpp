// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/death_pipe.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>

using namespace efs;

namespace {

bool has_ended(int line, int milliseconds) {
  pollfd one{.fd = line, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, milliseconds) == 1 && (one.revents & POLLHUP) != 0;
}

// A process that holds a death pipe. `told` ends when the process has no other descriptor of that
// pipe.
struct LifeLineHolder {
  LifeLineHolder() {
    std::array<int, 2> life{}, other{};
    REQUIRE(::pipe(life.data()) == 0);
    REQUIRE(::pipe(other.data()) == 0);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::close(life[0]);
      ::close(other[0]);
      if (!daemon::hold_death_pipe(UniqueFd(life[1]))) {
        ::_exit(1);
      }
      ::close(other[1]);
      while (true) {
        ::pause();
      }
    }
    ::close(life[1]);
    ::close(other[1]);
    line.reset(life[0]);
    told.reset(other[0]);
  }

  ~LifeLineHolder() {
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  LifeLineHolder(const LifeLineHolder&) = delete;
  LifeLineHolder& operator=(const LifeLineHolder&) = delete;

  pid_t pid = -1;
  UniqueFd line, told;
};

}  // namespace

TEST_CASE("a life line is all that its thread has, and ends with the process", "[alone]") {
  const LifeLineHolder process;
  // the thread has no copies of descriptors that the process closes
  CHECK(has_ended(process.told.get(), 20'000));
  CHECK_FALSE(has_ended(process.line.get(), 0));
  ::kill(process.pid, SIGKILL);
  CHECK(has_ended(process.line.get(), 20'000));
}
