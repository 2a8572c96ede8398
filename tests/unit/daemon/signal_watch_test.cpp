// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/signal_watch.hpp"

#include <pthread.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include <atomic>

using namespace efs;
using daemon::SignalWatch;

TEST_CASE("a signal becomes a call; the watch ends without one") {
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &signals, &before) == 0);
  std::atomic<int> calls{0};
  {
    const auto watch = SignalWatch::start(signals, [&] {
      ++calls;
      calls.notify_all();
    });
    REQUIRE(watch);
    for (int sent = 0; sent < 3; ++sent) {
      REQUIRE(::kill(::getpid(), SIGUSR2) == 0);
      calls.wait(sent);
      CHECK(calls == sent + 1);
    }
  }
  {
    REQUIRE(SignalWatch::start(signals, [&] { ++calls; }));
  }
  CHECK(calls == 3);
  REQUIRE(::pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
}
