#pragma once
// Signals as calls of a function, on a thread of their own that sleeps until one comes: an idle
// daemon must not wake a core that computes.

#include <signal.h>

#include <functional>
#include <memory>
#include <thread>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {

class SignalWatch {
 public:
  /// `signals` must be blocked in every thread of the process. `on_signal` runs on the watch's
  /// thread, once for each signal that is taken (the kernel may merge several of one kind), never
  /// after the destructor.
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
  const UniqueFd end_;      // eventfd(2): readable when the watch is to end
  std::jthread thread_;
};

}  // namespace efs::daemon
