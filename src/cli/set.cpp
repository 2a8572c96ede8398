// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include "cli/cli.hpp"

namespace efs::cli {

int set(World& world, const FileArguments& a) {
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  const auto answer =
      ask(*instance, to_json(control::requests::Set{.file_class = a.file_class, .paths = a.paths}));
  if (!answer) {
    return report(world, answer.error());
  }
  if (world.json) {
    print_document(world, *answer);
  }
  return exit_good;
}

}  // namespace efs::cli
