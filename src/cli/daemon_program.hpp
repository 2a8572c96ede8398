#pragma once
// efsd as a program: where it is, and why it could not run.

#include <string>

#include "base/result.hpp"

namespace efs::cli {

/// efsd lies beside efs, in the build tree as when installed. If it does not, PATH leads to it.
std::string daemon_program();

/// posix_spawn(3) of `program` gave `problem`.
Error cannot_start(const std::string& program, int problem);

/// "was killed by signal 9 (Killed)" or "ended with 127", of a status of waitpid(2).
std::string how_ended(int status);

}  // namespace efs::cli
