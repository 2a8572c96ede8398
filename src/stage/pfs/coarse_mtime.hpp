#pragma once
// A PFS that keeps times in whole seconds (ext4 with small inodes, and many an older one) cannot
// tell a version of a file from the next one of the same size that is written within the same
// second.

#include <atomic>
#include <chrono>

#include "fs/staging.hpp"

namespace efs::stage {

/// Before `seen` is read, `now`: how long until whatever changes the file from then on gets another
/// time. Nothing where its times are finer than seconds, or its last change is two seconds old; at
/// most four seconds, for the clocks of node and PFS may differ by one or two.
std::chrono::nanoseconds rest_of_second(const fs::Origin& seen, Nanoseconds now);

/// Waits for it, less where `cancel` is set.
void let_second_pass(const fs::Origin& seen, const std::atomic<bool>& cancel);

/// Behind a look at a file that was changed just now, `seen`: how long until a further change gets
/// another time, as kernels keep times by ticks of up to 10 ms. Nothing where the last change is
/// more than four seconds old.
std::chrono::nanoseconds rest_of_tick(const fs::Origin& seen, Nanoseconds now);

/// Waits for it, less where `cancel` is set. What is read then, and has the same time afterwards,
/// was not changed while it was read.
void let_tick_pass(const fs::Origin& seen, const std::atomic<bool>& cancel);

}  // namespace efs::stage
