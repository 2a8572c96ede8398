#include <iostream>

#include "cli/cli.hpp"

namespace efs::cli {

int cancel(World& world, const FileArguments& a) {
  const auto numbers = task_numbers(a.paths);
  if (!numbers) return report(world, numbers.error(), exit_usage);
  const auto instance = find_instance_for(a);
  if (!instance) return report(world, instance.error());
  int worst = exit_good;
  for (const auto number : *numbers)
    if (const auto answer = ask(*instance, {{"verb", "cancel"}, {"task", number}}); !answer) worst = report(world, answer.error());
  if (world.json && worst == exit_good) world.out << Json{{"ok", true}}.dump() << "\n";
  return worst;
}

}  // namespace efs::cli
