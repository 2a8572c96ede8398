// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {

// Returns exit code 1 if a name is not in the buffer.
int explain(World& world, const FileArguments& a) {
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  int code = exit_good;
  Json all = Json::array();
  for (const auto& path : a.paths) {
    const auto answer = ask(*instance, to_json(control::requests::Explain{.path = path}));
    if (!answer) {
      return report(world, answer.error());
    }
    if (!answer->value("in_buffer", false)) {
      code = exit_failure;
    }
    if (world.json) {
      all.push_back(*answer);
    } else {
      world.out << printable(answer->value("text", ""), true);
    }
  }
  if (world.json) {
    print_document(world, all.size() == 1 ? all.front() : all);
  }
  return code;
}

}  // namespace efs::cli
