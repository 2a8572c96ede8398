// SPDX-License-Identifier: BSD-3-Clause
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/preflight.hpp"
#include "config/keys.hpp"

namespace efs::cli {

Json values_of(const config::JobConfig& config) {
  Json values = Json::array();
  for (const auto& v : config.effective) {
    values.push_back({{"section", v.section},
                      {"key", v.key},
                      {"value", v.value},
                      {"source", name_of(v.source)},
                      {"where", v.where}});
  }
  return values;
}

void show_values(World& world, const config::JobConfig& config) {
  std::size_t width = 0;
  for (const auto& v : config.effective) {
    width = std::max(width, escaped(v.value).size());
  }
  std::string section;
  for (const auto& v : config.effective) {
    if (v.section != section) {
      world.out << printable(section = v.section) << "\n";
    }
    world.out << "  " << std::left << std::setw(16) << v.key
              << std::setw(static_cast<int>(std::min<std::size_t>(width, 48))) << escaped(v.value)
              << "  " << name_of(v.source)
              << (v.where.empty() ? "" : " (" + printable(v.where) + ")") << "\n";
  }
}

namespace {

// True also for a backend directory, existing or not, on a tmpfs. If the root of a diskless node is
// such a tmpfs, it says nothing about the persistent memory of the job's node.
bool is_in_memory(const config::Backend& backend) {
  if (backend.type == config::BackendType::dram) {
    return true;
  }
  struct stat root{}, st{};
  std::filesystem::path path = backend.daxfs;
  while (::stat(path.c_str(), &st) != 0 && path.has_relative_path()) {
    path = path.parent_path();
  }
  struct statfs fs{};
  if (::stat("/", &root) != 0 || st.st_dev == root.st_dev || ::statfs(path.c_str(), &fs) != 0) {
    return false;
  }
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

// The stores in memory with a declared capacity.
struct StoresInMemory {
  std::uint64_t capacity = 0;  // bytes, of all together
  std::string ids;
  int count = 0;
};

StoresInMemory stores_in_memory_of(const config::JobConfig& config) {
  StoresInMemory stores;
  for (const auto& backend : config.backends) {
    if (backend.capacity && is_in_memory(backend)) {
      stores.capacity += *backend.capacity;
      stores.ids += (stores.count++ == 0 ? "" : ", ") + backend.id;
    }
  }
  return stores;
}

// The capacity declared for memory must fit into the job's memory: pages that the job's programs
// write are charged to the job.
Status check_memory(const JobArguments& arguments, const config::JobConfig& config) {
  if (arguments.memory.empty() && arguments.node_memory.empty()) {
    return {};
  }
  const StoresInMemory stores = stores_in_memory_of(config);
  if (stores.count == 0) {
    return {};
  }
  const auto declared = std::ranges::find_if(
      config.effective, [](const config::EffectiveValue& v) { return v.key == "capacity"; });
  const std::string place = declared != config.effective.end() && !declared->where.empty()
                                ? declared->where
                                : arguments.job_file;
  const std::string what = place + ": capacity " + format_bytes(stores.capacity) +
                           (stores.count == 1 ? " of backend " + stores.ids + ", which is"
                                              : " of the backends " + stores.ids + ", which are") +
                           " in memory, is more than ";
  const auto exceeds = [&](const std::string& given) {
    const auto limit = config::parse_size(given);
    return limit && stores.capacity > *limit;
  };
  if (exceeds(arguments.memory)) {
    return fail(EINVAL, what + "the memory of the job on a node, " +
                            format_bytes(*config::parse_size(arguments.memory)) + " (" +
                            arguments.memory_source +
                            "): the store is charged to the job. Ask for more memory (--mem), "
                            "or lower the capacity");
  }
  if (exceeds(arguments.node_memory)) {
    return fail(EINVAL,
                what + "any node has, " + format_bytes(*config::parse_size(arguments.node_memory)) +
                    ". Lower the capacity, or store on a disk (type: NVRAM-NVML) or on more nodes");
  }
  return {};
}

Status write_whole(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  return out ? Status{} : fail(errno != 0 ? errno : EIO, "cannot write " + file);
}

// Reports paths of the job file that this node lacks or this user cannot access. Returns exit code
// 1: the file itself is valid.
int report_grounds(World& world, const JobArguments& arguments,
                   const std::vector<stage::PlanProblem>& problems) {
  if (world.json) {
    Json all = Json::array();
    for (const auto& problem : problems) {
      all.push_back({{"line", problem.line},
                     {"column", 0},
                     {"text", problem.path + " " + problem.reason},
                     {"suggestion", ""}});
    }
    print_document(
        world,
        {{"ok", false}, {"file", arguments.job_file}, {"problems", all}, {"exit", exit_failure}});
    return exit_failure;
  }
  for (const auto& problem : problems) {
    world.err << escaped(arguments.job_file)
              << (problem.line > 0 ? ":" + std::to_string(problem.line) : "") << ": "
              << printable(problem.path + " " + problem.reason) << "\n";
  }
  world.err
      << "On this machine the job cannot start. With --at-submission that is left to its nodes.\n";
  return exit_failure;
}

Json document_of_good(const JobArguments& arguments, const config::JobConfig& config) {
  Json document{{"ok", true},
                {"file", arguments.job_file},
                {"name", config.name},
                {"root_dir", config.root_dir},
                {"mount_dir", config.mount_dir},
                {"results_dir", config.results_dir}};
  if (arguments.show) {
    document["values"] = values_of(config);
  }
  return document;
}

void print_good(World& world, const JobArguments& arguments, const config::JobConfig& config) {
  world.out << escaped(arguments.job_file) << ": good (job " << escaped(config.name) << ", "
            << config.resources.size() << " resources, mounts at " << escaped(config.mount_dir)
            << ")\n";
  const bool reusable = std::ranges::any_of(config.resources, &config::Resource::reusable);
  if (reusable && config.cache.empty()) {
    world.out << "note: 'reusable' has no effect, as no cache is configured (key 'cache')\n";
  }
  if (arguments.show) {
    show_values(world, config);
  }
}

int check_here(World& world, const JobArguments& arguments) {
  const auto config = load_job(world, arguments);
  if (!config) {
    return config.error();
  }
  if (const Status fits = check_memory(arguments, *config); !fits) {
    return report(world, fits.error(), exit_usage);
  }
  if (!arguments.at_submission) {
    if (const auto problems = preflight_problems(*config); !problems.empty()) {
      return report_grounds(world, arguments, problems);
    }
  }
  if (!arguments.snapshot.empty()) {
    if (const Status written = write_whole(arguments.snapshot, config->snapshot); !written) {
      return report(world, written.error());
    }
  }
  if (world.json) {
    print_document(world, document_of_good(arguments, *config));
  } else {
    print_good(world, arguments, *config);
  }
  return exit_good;
}

int show_keys(World& world) {
  Json keys = Json::array();
  for (const auto& key : config::describe_keys()) {
    const std::string fallback = key.is_mandatory ? "mandatory" : key.fallback;
    if (world.json) {
      keys.push_back({{"section", key.section},
                      {"key", key.name},
                      {"values", key.values},
                      {"default", fallback},
                      {"site", key.site},
                      {"help", key.help}});
      continue;
    }
    world.out << std::left << std::setw(16) << key.section << std::setw(16) << key.name
              << std::setw(30) << key.values << std::setw(10) << (key.site.empty() ? "-" : key.site)
              << key.help
              << (key.is_mandatory   ? "; mandatory"
                  : fallback.empty() ? ""
                                     : "; default: " + fallback)
              << "\n";
  }
  if (world.json) {
    print_document(world, {{"ok", true}, {"keys", keys}});
  }
  return exit_good;
}

}  // namespace

int check(World& world, const JobArguments& arguments) {
  if (arguments.keys) {
    return show_keys(world);
  }
  return as_job_user(world, arguments, [&] { return check_here(world, arguments); });
}

}  // namespace efs::cli
