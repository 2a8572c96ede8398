// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/signal_watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/thread.hpp"

namespace efs::daemon {

Result<std::unique_ptr<SignalWatch>> SignalWatch::start(const sigset_t& signals,
                                                        std::function<void()> on_signal) {
  UniqueFd taken(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!taken) {
    return fail_errno("signalfd");
  }
  UniqueFd end(::eventfd(0, EFD_CLOEXEC));
  if (!end) {
    return fail_errno("eventfd");
  }
  std::unique_ptr<SignalWatch> started(
      new SignalWatch(std::move(taken), std::move(end), std::move(on_signal)));
  auto thread = start_thread([raw = started.get()] { raw->watch(); });
  if (!thread) {
    return with_context(thread.error(), "a thread for signals");
  }
  started->thread_ = std::move(*thread);
  return started;
}

SignalWatch::SignalWatch(UniqueFd signals, UniqueFd end, std::function<void()> on_signal)
    : on_signal_(std::move(on_signal)), signals_(std::move(signals)), end_(std::move(end)) {}

SignalWatch::~SignalWatch() {
  const std::uint64_t one = 1;
  (void)!::write(end_.get(), &one, sizeof one);
}

void SignalWatch::watch() {
  std::array<pollfd, 2> waited{{{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                {.fd = end_.get(), .events = POLLIN, .revents = 0}}};
  while (true) {
    if (::poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) {
      return;
    }
    if (waited[1].revents != 0) {
      return;
    }
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      on_signal_();
    }
  }
}

}  // namespace efs::daemon
