// SPDX-License-Identifier: BSD-3-Clause
#include "cli/doctor.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <iostream>
#include <string_view>

#include "base/mounts.hpp"
#include "base/text.hpp"
#include "cli/backend_durability.hpp"
#include "cli/cli.hpp"
#include "cli/colour.hpp"

namespace efs::cli {
namespace {

void print(World& world, const Finding& finding) {
  const std::string level = name_of(finding.level);
  const std::string blanks(9 - level.size(), ' ');
  world.out << painted(level, world.colour) << blanks << printable(finding.what) << ": "
            << printable(finding.text) << "\n";
  if (!finding.advice.empty()) {
    world.out << "         -> " << printable(finding.advice) << "\n";
  }
}

Json to_json(const Finding& finding) {
  Json line{{"level", name_of(finding.level)}, {"what", finding.what}, {"text", finding.text}};
  if (!finding.advice.empty()) {
    line["advice"] = finding.advice;
  }
  return line;
}

// Numbers that are not known are left out.
Json to_json(const DaxDevice& device) {
  Json json{{"name", device.name}, {"driver", device.driver}};
  if (device.size) {
    json["size"] = *device.size;
  }
  if (device.align) {
    json["align"] = *device.align;
  }
  return json;
}

Json to_json(const PmemMount& mount) {
  return {
      {"device", in_octal(mount.device)},
      {"mount", in_octal(mount.point)},
      {"type", in_octal(mount.type)},
      {"options", in_octal(mount.options)},
      {"durability", mount.probe.problem == 0 ? Json(name_of(mount.probe.durability())) : Json()}};
}

Json to_json(const PmemNamespace& one) {
  Json json{{"name", one.name},       {"mode", in_octal(one.mode)},
            {"block", one.block},     {"content", in_octal(one.content)},
            {"users", one.users},     {"dax", Json::array()},
            {"mounts", Json::array()}};
  if (one.size) {
    json["size"] = *one.size;
  }
  if (one.usable) {
    json["usable"] = *one.usable;
  }
  if (one.align) {
    json["align"] = *one.align;
  }
  for (const auto& device : one.characters) {
    json["dax"].push_back(to_json(device));
  }
  for (const auto& mount : one.mounts) {
    json["mounts"].push_back(to_json(mount));
  }
  return json;
}

Json to_json(const PmemRegion& region) {
  Json json{{"name", region.name},
            {"provider", in_octal(region.provider)},
            {"persistence_domain", in_octal(region.persistence_domain)},
            {"volatile", region.is_volatile},
            {"namespaces", Json::array()}};
  if (region.size) {
    json["size"] = *region.size;
  }
  if (region.available) {
    json["available"] = *region.available;
  }
  for (const auto& one : region.namespaces) {
    json["namespaces"].push_back(to_json(one));
  }
  return json;
}

Json to_json(const PmemDevices& devices) {
  Json json{{"regions", Json::array()}, {"dax", Json::array()}, {"problems", Json::array()}};
  for (const auto& region : devices.regions) {
    json["regions"].push_back(to_json(region));
  }
  for (const auto& device : devices.others) {
    json["dax"].push_back(to_json(device));
  }
  for (const auto& problem : devices.problems) {
    json["problems"].push_back(in_octal(problem));
  }
  return json;
}

}  // namespace

const char* name_of(Level level) {
  return level == Level::ok ? "ok" : level == Level::warning ? "warning" : "problem";
}

void add_findings(Findings& found, Findings more) {
  std::ranges::move(more, std::back_inserter(found));
}

Finding silent(const std::string& what, const std::string& path) {
  return {Level::problem, what,
          as_word(path) + " does not answer within " + std::to_string(patience) +
              " s: its file system hangs, and so do programs that use it",
          "see whether its server, or its daemon, runs; umount -f ends the waiting"};
}

namespace {

// Prints the findings; `document` gets them with --json. Returns the exit code.
int show(World& world, const Findings& all, Json document) {
  const auto count = [&](Level level) {
    return std::ranges::count(all, level, &Finding::level);
  };
  const int code = count(Level::problem) == 0 ? exit_good : exit_failure;
  if (world.json) {
    Json checks = Json::array();
    for (const auto& finding : all) {
      checks.push_back(to_json(finding));
    }
    document.update({{"ok", code == exit_good},
                     {"exit", code},
                     {"problems", count(Level::problem)},
                     {"warnings", count(Level::warning)},
                     {"checks", checks}});
    print_document(world, document);
    return code;
  }
  for (const auto& finding : all) {
    print(world, finding);
  }
  world.out << "problems: " << count(Level::problem) << ", warnings: " << count(Level::warning)
            << "\n";
  return code;
}

}  // namespace

int doctor(World& world, const std::string& job_file, const std::string& memory) {
  Findings all;
  for (const Findings& part : {examine_daemon(), examine_kernel(), examine_limits(),
                               examine_memory(config::parse_memory(memory)),
                               examine_stores(job_file, config::parse_memory(memory)),
                               examine_leftovers(), examine_slurm()}) {
    add_findings(all, part);
  }
  return show(world, all, Json::object());
}

int doctor_pmem(World& world) {
  const PmemSysfs sysfs("", [](const std::string& directory) {
    return answers(directory, patience) ? probe_directory(directory)
                                        : DurabilityProbe{.problem = ETIMEDOUT};
  });
  const PmemDevices devices = sysfs.read();
  return show(world, judge_pmem(devices), {{"pmem", to_json(devices)}});
}

}  // namespace efs::cli
