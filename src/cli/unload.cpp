// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include "cli/cli.hpp"

namespace efs::cli {

int unload(World& world, const FileArguments& a) {
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  const auto answer = ask(*instance, {{"verb", "unload"},
                                      {"paths", a.paths},
                                      {"as_is", a.as_is},
                                      {"remove", a.remove},
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
