// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/death_pipe.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <utility>

#include "base/thread.hpp"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)  // linux/close_range.h
#endif

namespace efs::daemon {
namespace {

// The first step gives this thread its own descriptor table.
int keep_only(int fd) {
  if (::close_range(static_cast<unsigned>(fd) + 1, ~0U, CLOSE_RANGE_UNSHARE) != 0) {
    return errno;
  }
  if (fd > 0) {
    (void)::close_range(0, static_cast<unsigned>(fd) - 1, 0);
  }
  return 0;
}

[[noreturn]] void wait_for_the_end() {
  while (true) {
    ::pause();
  }
}

}  // namespace

Status hold_death_pipe(UniqueFd end) {
  std::promise<int> told;
  auto is_apart = told.get_future();
  auto thread = start_thread([fd = end.get(), told = std::move(told)]() mutable {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);  // other threads handle signals
    const int code = keep_only(fd);
    told.set_value(code);
    if (code == 0) {
      wait_for_the_end();
    }
  });
  const int code = thread ? is_apart.get() : thread.error().code;
  if (code == 0) {
    thread->detach();
    return {};  // closes the caller's copy; the thread keeps its own
  }
  (void)end.release();
  return fail(code, "a thread that says when the worker is killed");
}

}  // namespace efs::daemon
