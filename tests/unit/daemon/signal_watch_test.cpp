// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/signal_watch.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>

using namespace efs;
using daemon::SignalWatch;

namespace {

/// The step that failed; 0: none did.
int watch_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  if (::pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return 1;
  }
  std::atomic<int> calls{0};
  {
    const auto watch = SignalWatch::start(signals, [&] {
      ++calls;
      calls.notify_all();
    });
    if (!watch) {
      return 2;
    }
    for (int sent = 0; sent < 3; ++sent) {
      if (::kill(::getpid(), SIGUSR2) != 0) {
        return 3;
      }
      calls.wait(sent);
      if (calls != sent + 1) {
        return 4;
      }
    }
  }
  if (!SignalWatch::start(signals, [&] { ++calls; })) {
    return 5;
  }
  return calls == 3 ? 0 : 6;
}

}  // namespace

// In a process of its own: a thread of another test, which does not block the signal, would get it.
TEST_CASE("a signal becomes a call; the watch ends without one", "[alone]") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::_exit(watch_signals());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
