#include <algorithm>
#include <iomanip>
#include <iostream>

#include "cli/cli.hpp"

namespace efs::cli {

Json values_of(const config::JobConfig& config) {
  Json values = Json::array();
  for (const auto& v : config.effective) values.push_back({{"section", v.section}, {"key", v.key}, {"value", v.value}, {"source", name_of(v.source)}, {"where", v.where}});
  return values;
}

void show_values(World& world, const config::JobConfig& config) {
  std::size_t width = 0;
  for (const auto& v : config.effective) width = std::max(width, v.value.size());
  std::string section;
  for (const auto& v : config.effective) {
    if (v.section != section) world.out << (section = v.section) << "\n";
    world.out << "  " << std::left << std::setw(16) << v.key << std::setw(static_cast<int>(std::min<std::size_t>(width, 48))) << v.value << "  " << name_of(v.source) << (v.where.empty() ? "" : " (" + v.where + ")") << "\n";
  }
}

int check(World& world, const JobArguments& arguments) {
  const auto config = load_job(world, arguments);
  if (!config) return config.error();
  if (world.json) {
    Json document{{"ok", true}, {"file", arguments.job_file}, {"name", config->name}, {"root_dir", config->root_dir}, {"mount_dir", config->mount_dir}, {"results_dir", config->results_dir}};
    if (arguments.show) document["values"] = values_of(*config);
    print_document(world, document);
    return exit_good;
  }
  world.out << arguments.job_file << ": good (job " << config->name << ", " << config->resources.size() << " resources, mounts at " << config->mount_dir << ")\n";
  const bool reusable = std::ranges::any_of(config->resources, &config::Resource::reusable);
  if (reusable && config->cache.empty()) world.out << "note: 'reusable' has no effect, as no cache is configured (key 'cache')\n";
  if (arguments.show) show_values(world, *config);
  return exit_good;
}

}  // namespace efs::cli
