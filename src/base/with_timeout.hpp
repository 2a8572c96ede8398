#pragma once
// What may hang in the kernel, and is not worth waiting for then.

#include <chrono>
#include <functional>

namespace efs {

/// Runs `action` on a thread of its own and waits for its end, as long as `time`. False: it goes on
/// by itself, perhaps until the process ends, and so must own all that it uses. Where no thread can
/// be had nothing is done, and that is false, too. `action` must not throw.
bool with_timeout(std::chrono::milliseconds time, std::function<void()> action);

}  // namespace efs
