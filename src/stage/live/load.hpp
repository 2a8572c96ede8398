#pragma once
// From the PFS into the buffer while programs run. No name appears before all of the request is in
// the buffer; then all appear, each in one step. No file that can be seen is ever written to.

#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/copy/progress.hpp"
#include "stage/import/stage_in.hpp"
#include "stage/live/range.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct LoadRequest {
  // below root-dir, as buffer_name() gives them: files, directories, patterns
  std::vector<std::string> names;
  // a file that is there and clean, but another version than the PFS has
  bool replace = false;
  // with replace: one that a program changed or has open for writing, too
  bool force = false;
  std::string backend = {};  // the id of the one that all goes to; "": as the job file says
  Part part = {};            // of one file; else the whole
};

struct LoadReport {
  std::uint64_t files = 0;    // new in the buffer, or in another's place
  std::uint64_t already = 0;  // were there, clean, in the PFS's version
  std::uint64_t bytes = 0;
  double seconds = 0;
  std::optional<StageFailure> failure;

  bool ok() const { return !failure; }
};

/// Loads, on `workers` threads that end before it returns. Files that are there already in the
/// PFS's version stay. Refused before anything moves: what is missing or unreadable, what is there
/// in another version without `replace` (EEXIST), what would lose a change without `force` (EBUSY),
/// what does not fit (ENOSPC). After an error or a cancel nothing is there and no space is taken.
/// Names that fail in the very last step (a program took one) take back those that were given
/// before, which could be seen for a moment; but for what took another's place and what a program
/// has changed since: the error says how many files these are.
///
/// With a part, `names` is one file. It appears with the size that it has on the PFS and holes for
/// the rest, is temporary, never goes back whole, and `efs ls` and `efs explain` say which parts it
/// has. Loading another part of it reads all its parts again into a new file, which takes its
/// place; with no part missing it is a whole file.
LoadReport load(const config::JobConfig& config, const LoadRequest& request, fs::Staging& staging,
                PfsIo& pfs, const Options& options, Progress& progress);

}  // namespace efs::stage
