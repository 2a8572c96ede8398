// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Turns signals into calls of a function. Its thread sleeps until a signal arrives: an idle daemon
// must not wake a core that computes.

#include <signal.h>

#include <functional>
#include <memory>
#include <thread>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {

class SignalWatch {
 public:
  /// `signals` must be blocked in every thread of the process. The watch's thread calls `on_signal`
  /// once for each signal that it reads; the kernel may merge several signals of one kind. No call
  /// begins after the destructor.
  static Result<std::unique_ptr<SignalWatch>> start(const sigset_t& signals,
                                                    std::function<void()> on_signal);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  SignalWatch(UniqueFd signals, UniqueFd end, std::function<void()> on_signal);
  void watch();

  const std::function<void()> on_signal_;
  const UniqueFd signals_;  // signalfd(2)
  const UniqueFd end_;      // eventfd(2): readable when the watch must end
  std::jthread thread_;
};

}  // namespace efs::daemon
