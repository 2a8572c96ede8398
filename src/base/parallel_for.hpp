// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Parallel loops for work that only computes or queries the kernel's memory: on all CPUs.

#include <cstddef>
#include <functional>

#include "base/result.hpp"

namespace efs {

/// Calls `work` for ranges [begin, end) of the items 0 ... count-1, at most `grain` items at a
/// time. Runs on one thread per CPU, including the caller's. Runs on the caller's thread alone if
/// there is only one range or if no thread can be started. Returns when no call is running. After
/// an error no further range begins; the function returns one of the errors. `work` may throw only
/// std::bad_alloc, which becomes ENOMEM.
Status parallel_for(std::size_t count, std::size_t grain,
                    const std::function<Status(std::size_t begin, std::size_t end)>& work);

}  // namespace efs
