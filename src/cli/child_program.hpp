// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The program of `efs run` and `efs record`.

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace efs::cli {

/// Replaces this process by the program, which it finds as execvp(3) does. Returns only if that
/// fails: the errno.
int execute(const std::vector<std::string>& command);

/// A child process that executes a program. From its construction on, this process blocks the
/// signals that it forwards to the child, and never unblocks them. One object for each process.
class ChildProgram {
 public:
  ChildProgram();

  /// Forks. The child has the signals of efs's caller, calls `prepare`, and executes the program.
  /// If that fails, the child says so on standard error and exits with 126 or 127, as env(1).
  Status start(const std::vector<std::string>& command, const std::function<void()>& prepare);

  /// Forwards signals (a time limit, ctrl-c) until the program ends. Returns its exit code: for a
  /// signal 128 and its number; 126 if the code is unknown.
  int wait() const;

 private:
  sigset_t forwarded_{};
  sigset_t before_{};
  pid_t child_ = -1;
};

}  // namespace efs::cli
