// SPDX-License-Identifier: BSD-3-Clause
// efs intercept: executes a program with libefs-intercept. The same for the program of efs run.

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/mounts.hpp"
#include "base/text.hpp"
#include "cli/child_program.hpp"
#include "cli/cli.hpp"
#include "cli/loader_rules.hpp"
#include "cli/preload.hpp"

namespace efs::cli {

Result<std::string> find_interception() {
  return find_preloaded_library("libefs-intercept.so", "efs intercept");
}

void prepare_interception(World& world, const InterceptArguments& arguments,
                          const std::string& library, const std::string& program) {
  const std::string reason = reason_not_preloaded(program);
  if (!reason.empty()) {
    world.err << "efs: warning: " << printable(program) << " is not intercepted: " << reason
              << ". It reads and writes through the mount, which is correct and slower"
              << std::endl;
  }
  preload(library);
  if (arguments.stats || arguments.verify) {
    ::setenv("EFS_INTERCEPT", arguments.stats ? "stats" : "verify", 1);
  }
  if (!arguments.skip.empty()) {
    ::setenv("EFS_INTERCEPT_SKIP", arguments.skip.c_str(), 1);
  }
}

int intercept(World& world, const InterceptArguments& arguments,
              const std::vector<std::string>& command) {
  const auto library = find_interception();
  if (!library) {
    return report(world, library.error());
  }
  if (efs_mounts().empty()) {
    world.err << "efs: warning: no file system of efs is mounted here: nothing is intercepted"
              << std::endl;
  }
  prepare_interception(world, arguments, *library, command.front());
  const int problem = execute(command);
  return report(world, {problem, printable(command.front()) + ": " + std::strerror(problem)},
                problem == ENOENT ? exit_not_found : exit_cannot_run);
}

}  // namespace efs::cli
