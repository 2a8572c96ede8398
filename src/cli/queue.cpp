#include <iostream>

#include "cli/cli.hpp"
#include "queue/overview.hpp"

namespace efs::cli {

int queue(World& world, const std::string& directory) {
  const auto overview = efs::queue::look_at(directory);
  if (!overview) return report(world, overview.error());
  if (world.json) {
    Json line = efs::queue::to_json(*overview);
    line["ok"] = overview->problem.empty();
    world.out << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    world.out << efs::queue::describe(*overview);
  }
  return overview->problem.empty() ? exit_good : exit_failure;
}

}  // namespace efs::cli
