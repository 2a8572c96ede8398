#include <iostream>

#include "base/memory.hpp"
#include "cli/cli.hpp"
#include "stage/planner.hpp"

namespace efs::cli {

int plan(World& world, const JobArguments& arguments) {
  const auto config = load_job(world, arguments);
  if (!config) return config.error();
  const auto plan = stage::make_plan(*config, stage::posix_pfs(), config::capacity_of(config->backends.front(), available_memory()));
  if (!plan) return report(world, plan.error());
  if (world.json) {
    Json line = stage::to_json(*plan);
    line["ok"] = plan->problems.empty();
    if (arguments.show) line["values"] = values_of(*config);
    world.out << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    if (arguments.show) show_values(world, *config);
    world.out << stage::describe(*plan) << "\n";
  }
  return plan->problems.empty() ? exit_good : exit_failure;
}

}  // namespace efs::cli
