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

}  // namespace

int check_image(World& world, const std::string& which, bool repair) {
  const auto path = image_path_as_owner(which);
  if (!path) {
    return report(world, path.error());
  }
  const Status repaired = repair ? image::repair_image(*path) : Status();
  if (!repaired && (repaired.error().code != EUCLEAN || !world.json)) {
    (void)report(world, repaired.error());
  }
  if (!repaired && repaired.error().code != EUCLEAN) {
    return exit_failure;
  }
  const auto checked = image::check_image(*path);
  if (!checked) {
    return report(world, checked.error());
  }
  const auto worst = checked->worst();
  const int code = !repaired                            ? exit_failure
                   : worst == image::Severity::note     ? exit_good
                   : worst == image::Severity::leftover ? exit_some_failed
                                                        : exit_failure;
  if (world.json) {
    Json findings = Json::array();
    for (const auto& finding : checked->findings) {
      findings.push_back({{"severity", image::name_of(finding.severity)},
                          {"object", finding.object},
                          {"text", finding.text}});
    }
    Json answer = {{"ok", code == exit_good},   {"exit", code},
                   {"store", checked->path},    {"records", checked->records},
                   {"files", checked->files},   {"directories", checked->directories},
                   {"others", checked->others}, {"containers", checked->containers},
                   {"bytes", checked->bytes},   {"journal_bytes", checked->journal_bytes},
                   {"findings", findings}};
    if (!repaired) {
      answer.update({{"error", describe(repaired.error())}, {"code", repaired.error().code}});
    }
    print_document(world, answer);
    return code;
  }
  print_findings(world.out, checked->findings);
  world.out << printable(checked->path) << ": " << checked->records << " records, "
            << checked->files << " files, " << checked->directories << " directories, "
            << checked->others << " others, " << checked->containers << " containers with "
            << format_bytes(checked->bytes)
            << (code == exit_good ? "; whole\n"
                : worst == image::Severity::leftover
                    ? "; whole, with leftovers (--repair removes them)\n"
                    : "; damaged\n");
  return code;
}

}  // namespace efs::cli
