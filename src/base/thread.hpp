// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Starts threads on systems that may refuse one: a limit on processes, or no memory for a stack.

#include <cerrno>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/cpu_binding.hpp"
#include "base/result.hpp"

namespace efs {

/// Starts a thread, which may use each CPU of the process even if the caller is bound to one.
/// Returns EAGAIN or ENOMEM, without a text, if the system refuses; throws nothing. `work` must not
/// throw.
template <typename Work>
Result<std::jthread> start_thread(Work&& work) {
  try {
    return std::jthread(
        [bound = bound_cpu().has_value(), work = std::forward<Work>(work)]() mutable {
          if (bound) {
            use_cpus_of_process();
          }
          work();
        });
  } catch (const std::system_error& problem) {
    return fail(problem.code().value());
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

}  // namespace efs
