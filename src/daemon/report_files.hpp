// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The calls to the PFS for the report of a job. The PFS may hang: each function returns within its
// time. A call that hangs then continues on a thread that owns everything it uses, perhaps until
// the process ends.

#include <chrono>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "stage/export/job_record.hpp"
#include "stage/pfs/paced_pfs.hpp"

namespace efs::daemon {

/// A name that programs looked up in vain.
struct MissedName {
  std::string path;    // relative to the root of the mount
  std::string source;  // the same name, relative to root-dir
};

/// Returns the names of regular files and directories that root-dir has. Makes at most one call for
/// each name and one for each directory. If root-dir does not answer in time, or `time` is not
/// positive, all names are unchecked; if it is slow, the last ones. May throw std::bad_alloc.
stage::MissedInputs ask_root_dir(const std::string& root_dir, std::vector<MissedName> names,
                                 const stage::Pace& pace, std::chrono::milliseconds time);

struct ReportFiles {
  std::string directory;    // results-dir
  std::string job;          // its name
  std::string partial_tag;  // as for results
  std::string page;         // ""; there is no page
  std::string names;        // "": there is no file with names that a lookup missed
};

/// Writes the files of the report with mode 0600. Removes a page, and a file with names, of an
/// earlier stop where there is no new one; a file that efs did not write stays. Returns ETIME if
/// the PFS does not answer in time. May throw std::bad_alloc.
Status write_report_files(ReportFiles files, const stage::Pace& pace,
                          std::chrono::milliseconds time);

}  // namespace efs::daemon
