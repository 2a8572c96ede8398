// SPDX-License-Identifier: BSD-3-Clause
#include <map>
#include <utility>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/image_path.hpp"
#include "image/check.hpp"

namespace efs::cli {
namespace {

// Prints a finding that many containers share only once. Findings with a name are printed one by
// one.
void print_findings(std::ostream& out, const std::vector<image::Finding>& findings) {
  std::map<std::pair<image::Severity, std::string>, std::uint64_t> times;
  for (const auto& finding : findings) {
    if (finding.object.starts_with("container ")) {
      ++times[{finding.severity, finding.text}];
    }
  }
  for (const auto& finding : findings) {
    const bool is_container = finding.object.starts_with("container ");
    const std::uint64_t others =
        is_container ? std::exchange(times[{finding.severity, finding.text}], 0) : 1;
    if (others > 0) {
      out << image::name_of(finding.severity) << ": " << printable(finding.object)
          << (others > 1 ? " and " + std::to_string(others - 1) + " others" : "") << ": "
          << printable(finding.text, true) << "\n";
    }
  }
}

// `repaired`: the result of --repair, or good without it.
int verdict_code(const Status& repaired, image::Severity worst) {
  if (!repaired) {
    return exit_failure;
  }
  return worst == image::Severity::note       ? exit_good
         : worst == image::Severity::leftover ? exit_some_failed
                                              : exit_failure;
}

Json check_document(const image::CheckReport& checked, int code) {
  Json findings = Json::array();
  for (const auto& finding : checked.findings) {
    findings.push_back({{"severity", image::name_of(finding.severity)},
                        {"object", finding.object},
                        {"text", finding.text}});
  }
  return {{"ok", code == exit_good},  {"exit", code},
          {"store", checked.path},    {"records", checked.records},
          {"files", checked.files},   {"directories", checked.directories},
          {"others", checked.others}, {"containers", checked.containers},
          {"bytes", checked.bytes},   {"journal_bytes", checked.journal_bytes},
          {"findings", findings}};
}

void print_verdict(std::ostream& out, const image::CheckReport& checked, int code) {
  print_findings(out, checked.findings);
  out << printable(checked.path) << ": " << checked.records << " records, " << checked.files
      << " files, " << checked.directories << " directories, " << checked.others << " others, "
      << checked.containers << " containers with " << format_bytes(checked.bytes)
      << (code == exit_good ? "; whole\n"
          : checked.worst() == image::Severity::leftover
              ? "; whole, with leftovers (--repair removes them)\n"
              : "; damaged\n");
}

}  // namespace

int check_image(World& world, const std::string& which, bool repair) {
  const auto path = image_path_as_owner(which);
  if (!path) {
    return report(world, path.error());
  }
  const Status repaired = repair ? image::repair_image(*path) : Status();
  if (!repaired && repaired.error().code != EUCLEAN) {
    return report(world, repaired.error());
  }
  if (!repaired && !world.json) {
    (void)report(world, repaired.error());
  }
  const auto checked = image::check_image(*path);
  if (!checked) {
    return report(world, checked.error());
  }
  const int code = verdict_code(repaired, checked->worst());
  if (!world.json) {
    print_verdict(world.out, *checked, code);
    return code;
  }
  Json answer = check_document(*checked, code);
  if (!repaired) {
    answer.update({{"error", describe(repaired.error())}, {"code", repaired.error().code}});
  }
  print_document(world, answer);
  return code;
}

}  // namespace efs::cli
