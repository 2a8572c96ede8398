// SPDX-License-Identifier: BSD-3-Clause
// efs report: what happened in a job, from its receipt.
#include <sys/stat.h>

#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/colour.hpp"
#include "cli/find_receipt.hpp"
#include "report/report.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::cli {

int report_job(World& world, const ReportArguments& arguments) {
  const auto found = find_receipt(arguments.which);
  if (!found) {
    return report(world, found.error());
  }
  const auto made = report::make_report(found->receipt);
  if (!arguments.html.empty()) {
    const Status written = stage::write_beside_results(report::to_html(made), arguments.html,
                                                       S_IRUSR | S_IWUSR, stage::posix_pfs());
    if (!written) {
      return report(world,
                    {written.error().code, arguments.html + ": " + describe(written.error())});
    }
  }
  if (world.json) {
    Json document = report::to_json(made);
    document.update({{"ok", true}, {"exit", exit_good}, {"receipt", found->path}});
    if (!arguments.html.empty()) {
      document["html"] = arguments.html;
    }
    print_document(world, document);
  } else if (arguments.html.empty()) {
    world.out << painted_lines(report::to_text(made), made.verdict, world.colour);
  } else {
    world.out << escaped(arguments.html) << "\n";
  }
  return exit_good;
}

}  // namespace efs::cli
