#pragma once
// Job files and site files as text.

#include <cstddef>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace efs::config {

inline constexpr std::size_t largest_file = 1u << 20;  // bytes

/// The whole file; where it is larger than the limit, one byte more than that. `what` ("the job
/// file") is for messages. A file that is not a regular one is refused, without waiting for a
/// FIFO's writer. `trusted`: nobody but root and this process's user may be able to change it; else
/// EPERM.
Result<std::string> read_file(const std::string& file, const std::string& what,
                              bool trusted = false);

/// What a job file is called that comes from a pipe or another open descriptor.
inline constexpr const char* standard_input = "-";

/// The descriptor of this process that `file` names: "-", /dev/stdin, /dev/fd/N, as the shell's
/// <(command) gives, or /proc/self/fd/N. nullopt: a path that other processes can open, too.
std::optional<int> stream_of(const std::string& file);

/// All that comes from the descriptor, which can be read once; where it is more than the limit, one
/// byte more than that.
Result<std::string> read_stream(int fd, const std::string& what);

}  // namespace efs::config
