#pragma once
// Work on many items that only computes, or asks the kernel what it has in memory: on all CPUs.

#include <cstddef>
#include <functional>

#include "base/result.hpp"

namespace efs {

/// Calls `work` for neighbours [begin, end) of the items 0 ... count-1, at most `grain` at a time,
/// on one thread for each CPU, the caller's among them (and by that alone where there is not more
/// than one piece, or no thread to be had). Returns when none runs. After an error no further piece
/// is begun; it is told, of several any one. ENOMEM where `work` throws std::bad_alloc; it must
/// throw nothing else.
Status parallel_for(std::size_t count, std::size_t grain,
                    const std::function<Status(std::size_t begin, std::size_t end)>& work);

}  // namespace efs
