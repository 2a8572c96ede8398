// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Some file systems keep times in whole seconds (ext4 with small inodes, older file systems). They
// cannot distinguish two versions of a file that have the same size and are written within the same
// second.

#include <atomic>
#include <chrono>

#include "fs/staging.hpp"

namespace efs::stage {

/// How long to wait at time `now`, before the file `seen` is read, until any later change gets
/// another time. Zero if the times are finer than seconds or the last change is two seconds old. At
/// most four seconds: the clocks of the node and the PFS may differ by one or two.
std::chrono::nanoseconds rest_of_second(const fs::Origin& seen, Nanoseconds now);

/// Waits that long. Ends early if `cancel` is set.
void let_second_pass(const fs::Origin& seen, const std::atomic<bool>& cancel);

/// Behind a look at a file that was changed just now, `seen`: how long until a further change gets
/// another time, as kernels keep times by ticks of up to 10 ms. Nothing where the last change is
/// more than four seconds old.
std::chrono::nanoseconds rest_of_tick(const fs::Origin& seen, Nanoseconds now);

/// Waits for it, less where `cancel` is set. What is read then, and has the same time afterwards,
/// was not changed while it was read.
void let_tick_pass(const fs::Origin& seen, const std::atomic<bool>& cancel);

}  // namespace efs::stage
