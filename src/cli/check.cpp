#include <iostream>

#include "cli/cli.hpp"

namespace efs::cli {

int check(World& world, const JobArguments& arguments) {
  const auto config = load_job(world, arguments);
  if (!config) return config.error();
  if (world.json) print_document(world, {{"ok", true}, {"file", arguments.job_file}, {"name", config->name}});
  else world.out << arguments.job_file << ": good (job " << config->name << ", " << config->resources.size() << " resources, mounts at " << config->mount_dir << ")\n";
  return exit_good;
}

}  // namespace efs::cli
