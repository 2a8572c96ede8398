// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads job files and site files as text.

#include <cstddef>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace efs::config {

inline constexpr std::size_t largest_file = 1u << 20;  // bytes

/// Returns the whole file, or limit + 1 bytes of a larger file. `what` ("the job file") is for
/// messages. Rejects files that are not regular, without waiting for a FIFO's writer. `trusted`:
/// only root and this process's user may be able to change the file; otherwise EPERM.
Result<std::string> read_file(const std::string& file, const std::string& what,
                              bool trusted = false);

/// The name of a job file from a pipe or another open descriptor.
inline constexpr const char* standard_input = "-";

/// Returns the descriptor of this process that `file` names: "-", /dev/stdin, /dev/fd/N (as in the
/// shell's <(command)), or /proc/self/fd/N. nullopt for a path that other processes can open too.
std::optional<int> stream_of(const std::string& file);

/// Reads the descriptor to its end, which is possible only once. Returns limit + 1 bytes if there
/// are more.
Result<std::string> read_stream(int fd, const std::string& what);

}  // namespace efs::config
