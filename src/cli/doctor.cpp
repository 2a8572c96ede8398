// SPDX-License-Identifier: BSD-3-Clause
#include "cli/doctor.hpp"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <string_view>

#include "base/text.hpp"
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

int doctor(World& world, const std::string& job_file, const std::string& memory) {
  Findings all;
  for (const Findings& part : {examine_daemon(), examine_kernel(), examine_limits(),
                               examine_memory(config::parse_memory(memory)),
                               examine_stores(job_file, config::parse_memory(memory)),
                               examine_leftovers(), examine_slurm()}) {
    add_findings(all, part);
  }
  const auto count = [&](Level level) {
    return std::ranges::count(all, level, &Finding::level);
  };
  const int code = count(Level::problem) == 0 ? exit_good : exit_failure;
  if (world.json) {
    Json checks = Json::array();
    for (const auto& finding : all) {
      checks.push_back(to_json(finding));
    }
    print_document(world, {{"ok", code == exit_good},
                           {"exit", code},
                           {"problems", count(Level::problem)},
                           {"warnings", count(Level::warning)},
                           {"checks", checks}});
    return code;
  }
  for (const auto& finding : all) {
    print(world, finding);
  }
  world.out << "problems: " << count(Level::problem) << ", warnings: " << count(Level::warning)
            << "\n";
  return code;
}

}  // namespace efs::cli
