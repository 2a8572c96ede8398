// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/worker_watch.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>

using namespace efs;
using daemon::WorkerWatch;
using std::chrono::milliseconds;

namespace {

// A child that sends a byte on its channel for each request, and the signal mask before the test.
struct Worker {
  Worker() {
    REQUIRE(::pthread_sigmask(SIG_SETMASK, nullptr, &before) == 0);
    std::array<int, 2> down{}, up{};
    REQUIRE(::pipe(down.data()) == 0);
    REQUIRE(::pipe(up.data()) == 0);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::close(down[1]);
      char byte = 0;
      while (::read(down[0], &byte, 1) == 1 && ::write(up[1], &byte, 1) == 1) {
      }
      ::_exit(0);
    }
    ::close(down[0]);
    ::close(up[1]);
    asks.reset(down[1]);
    channel.reset(up[0]);
  }

  ~Worker() {
    asks.reset();
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void stop() const {
    siginfo_t change{};
    REQUIRE(::kill(pid, SIGSTOP) == 0);
    REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &change, WSTOPPED | WNOWAIT) == 0);
  }

  void ask() const { REQUIRE(::write(asks.get(), "x", 1) == 1); }

  char answer() const {
    char byte = 0;
    return ::read(channel.get(), &byte, 1) == 1 ? byte : '\0';
  }

  pid_t pid = -1;
  UniqueFd asks, channel;
  sigset_t before{};
};

}  // namespace

TEST_CASE("a worker that is stopped, before or while it is watched, goes on and answers") {
  const Worker worker;
  worker.stop();
  WorkerWatch watch(worker.pid, -1, milliseconds(20));
  for (int round = 0; round < 3; ++round) {
    worker.ask();
    watch.wait(worker.channel.get());  // must not return
    CHECK(worker.answer() == 'x');
    if (round < 2) {
      worker.stop();
    }
  }
}

TEST_CASE("a worker that ends, stopped or not, ends the waiting") {
  const Worker worker;
  WorkerWatch watch(worker.pid, -1, std::chrono::hours(1));
  worker.stop();
  ::kill(worker.pid, SIGKILL);
  watch.wait(worker.channel.get());
  CHECK(worker.answer() == '\0');
  siginfo_t ended{};
  // the owner of the child can still ask for its status
  CHECK(::waitid(P_PID, static_cast<id_t>(worker.pid), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(ended.si_code == CLD_KILLED);
}

TEST_CASE(
    "a worker that was killed and is not gone is waited for no longer than was asked, and what it "
    "had said is read first") {
  const Worker worker;
  std::array<int, 2> life{};
  REQUIRE(::pipe(life.data()) == 0);
  const UniqueFd line(life[0]);
  WorkerWatch watch(worker.pid, line.get());
  worker.ask();
  REQUIRE(watch.wait(worker.channel.get()));
  ::close(life[1]);  // this end closes first; the kernel may keep the rest of the process
  CHECK(watch.wait(worker.channel.get()));
  CHECK(worker.answer() == 'x');
  CHECK_FALSE(watch.wait(worker.channel.get()));
  CHECK_FALSE(watch.reap(milliseconds(20)).has_value());
  ::kill(worker.pid, SIGKILL);
  const auto status = watch.reap(std::chrono::hours(1));
  REQUIRE(status.has_value());
  CHECK(WIFSIGNALED(*status));
}

TEST_CASE("a worker that has a life line and lives is waited for") {
  const Worker worker;
  std::array<int, 2> life{};
  REQUIRE(::pipe(life.data()) == 0);
  const UniqueFd line(life[0]), end(life[1]);
  WorkerWatch watch(worker.pid, line.get());
  ::kill(worker.pid, SIGKILL);
  // the pipe does not end, so the time does not matter
  const auto status = watch.reap(milliseconds(0));
  REQUIRE(status.has_value());
  CHECK(WIFSIGNALED(*status));
}
