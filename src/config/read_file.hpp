#pragma once
// Job files and site files as text.

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace efs::config {

inline constexpr std::size_t largest_file = 1u << 20;  // bytes

/// The whole file; where it is larger than the limit, one byte more than that. `what` ("the job file") is for messages.
/// A file that is not a regular one is refused, without waiting for a FIFO's writer.
/// `trusted`: nobody but root and this process's user may be able to change it; else EPERM.
Result<std::string> read_file(const std::string& file, const std::string& what, bool trusted = false);

}  // namespace efs::config
