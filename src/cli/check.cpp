#include <iostream>

#include "cli/cli.hpp"

namespace efs::cli {

int check(World& world, const JobArguments& arguments) {
  const auto config = load_job(world, arguments);
  if (!config) return config.error();
  if (world.json) world.out << Json{{"ok", true}, {"file", arguments.job_file}, {"name", config->name}, {"root_dir", config->root_dir}, {"mount_dir", config->mount_dir}, {"results_dir", config->results_dir}}.dump() << "\n";
  else world.out << arguments.job_file << ": good (job " << config->name << ", " << config->resources.size() << " resources, mounts at " << config->mount_dir << ")\n";
  return exit_good;
}

}  // namespace efs::cli
