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

/// `seen`: a file that was changed just now. Returns the time until a further change gets another
/// time, because kernels keep times in ticks of up to 10 ms. Zero if the last change is more than
/// four seconds old.
std::chrono::nanoseconds rest_of_tick(const fs::Origin& seen, Nanoseconds now);

/// Waits that long. Ends early if `cancel` is set. If the file is read after this wait and has the
/// same time after the read, it did not change during the read.
void let_tick_pass(const fs::Origin& seen, const std::atomic<bool>& cancel);

}  // namespace efs::stage
