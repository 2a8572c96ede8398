// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The program efsd: how to find it, and the errors of a failed start.

#include <string>

#include "base/result.hpp"

namespace efs::cli {

/// Returns the path of efsd beside efs, in the build tree and when installed. If there is none,
/// returns a name for a search in PATH.
std::string daemon_program();

/// Returns the error for `problem`, which posix_spawn(3) of `program` returned.
Error cannot_start(const std::string& program, int problem);

/// Converts a status of waitpid(2) to "was killed by signal 9 (Killed)" or "ended with 127".
std::string how_ended(int status);

}  // namespace efs::cli
