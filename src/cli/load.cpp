// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include "cli/cli.hpp"

namespace efs::cli {

// Prints only the number of the task, so that a script can store it. With --wait prints the
// outcome.
int load(World& world, const FileArguments& a) {
  if (a.force && !a.replace) {
    return report(world,
                  {EINVAL, "--force goes with --replace: it drops the changes of what is replaced"},
                  exit_usage);
  }
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  const auto answer = ask(*instance, {{"verb", "load"},
                                      {"paths", a.paths},
                                      {"replace", a.replace},
                                      {"force", a.force},
                                      {"offset", a.offset},
                                      {"size", a.size}});
  if (!answer) {
    return report(world, answer.error());
  }
  const auto task = answer->value("task", std::uint64_t{0});
  if (a.wait) {
    return finish_task(world, *instance, task);
  }
  if (world.json) {
    print_document(world, *answer);
  } else {
    world.out << task << "\n";
  }
  return exit_good;
}

}  // namespace efs::cli
