// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include "cli/cli.hpp"

namespace efs::cli {

int cancel(World& world, const FileArguments& a) {
  const auto numbers = task_numbers(a.paths);
  if (!numbers) {
    return report(world, numbers.error(), exit_usage);
  }
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  int worst = exit_good;
  Json document{{"ok", true}};
  Json all = Json::array();
  for (const auto number : *numbers) {
    const auto answer = ask(*instance, to_json(control::requests::Cancel{.task = number}));
    all.push_back({{"task", number}, {"ok", answer.has_value()}});
    if (answer) {
      continue;
    }
    all.back().update(error_document(answer.error()));
    if (worst == exit_good) {
      document = error_document(answer.error());
    }
    worst = world.json ? int{exit_failure} : report(world, answer.error());
  }
  if (numbers->size() > 1) {
    document["tasks"] = std::move(all);
  }
  if (world.json) {
    print_document(world, document);
  }
  return worst;
}

}  // namespace efs::cli
