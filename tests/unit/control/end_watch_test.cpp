// SPDX-License-Identifier: BSD-3-Clause
#include "control/end_watch.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>

#include "support/temp.hpp"

using namespace efs;

namespace {

// A process that lives until its pipe is closed.
struct Process {
  pid_t pid = -1;
  UniqueFd pipe;

  Process() {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    pid = ::fork();
    if (pid == 0) {
      ::close(ends[1]);
      char byte = 0;
      ::_exit(::read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    ::close(ends[0]);
    pipe.reset(ends[1]);
  }

  ~Process() {
    pipe.reset();
    ::waitpid(pid, nullptr, 0);
  }
};

UniqueFd locked(const std::string& directory) {
  UniqueFd lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  return lock;
}

}  // namespace

TEST_CASE(
    "end watch: an instance whose lock is free has ended, though its supervisor is not through",
    "[control]") {
  const test::TempDirectory directory;
  const Process supervisor;
  auto lock = locked(directory.path());
  const control::EndWatch end(directory.path(), supervisor.pid);
  lock.reset();
  end.wait();
}

TEST_CASE(
    "end watch: the next instance of the name, which holds the lock by then, is not waited for",
    "[control]") {
  const test::TempDirectory directory;
  Process supervisor;
  const auto of_the_next = locked(directory.path());
  const control::EndWatch end(directory.path(), supervisor.pid);
  supervisor.pipe.reset();
  end.wait();
}

TEST_CASE("end watch: a wait can have an end", "[control]") {
  const test::TempDirectory directory;
  const Process supervisor;
  auto lock = locked(directory.path());
  const control::EndWatch end(directory.path(), supervisor.pid);
  CHECK_FALSE(end.wait(std::chrono::milliseconds(20)));
  lock.reset();
  CHECK(end.wait(std::chrono::milliseconds(20)));
}

TEST_CASE("end watch: where the supervisor is not known, the lock is waited for", "[control]") {
  const test::TempDirectory directory;
  std::array<int, 2> ready{};
  REQUIRE(::pipe2(ready.data(), O_CLOEXEC) == 0);
  const UniqueFd told(ready[0]);
  UniqueFd teller(ready[1]);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto lock = locked(directory.path());
    (void)!::write(teller.get(), "1", 1);
    ::usleep(50'000);  // the watch is waiting
    ::_exit(0);
  }
  teller.reset();
  char byte = 0;
  REQUIRE(::read(told.get(), &byte, 1) == 1);
  const control::EndWatch end(directory.path(), 0);
  end.wait();
  CHECK(::flock(locked(directory.path()).get(), LOCK_UN) == 0);  // unlocked
  ::waitpid(holder, nullptr, 0);
}
