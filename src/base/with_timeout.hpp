// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Time limits for calls that may hang in the kernel.

#include <chrono>
#include <functional>

namespace efs {

/// Runs `action` on a new thread and waits for its end for at most `time`. Returns false after that
/// time. The action then continues, perhaps until the process ends, so it must own everything it
/// uses. Returns false, without running the action, if no thread can be started. `action` must not
/// throw.
bool with_timeout(std::chrono::milliseconds time, std::function<void()> action);

}  // namespace efs
