// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Imports files from the PFS while programs run. No name appears before the buffer has the data of
// the whole request. Then each name appears in one step. A load never writes to a visible file.

#include <string>
#include <vector>

#include "stage/import/stage_in.hpp"
#include "stage/live/live_transfer.hpp"
#include "stage/live/range.hpp"

namespace efs::stage {

struct LoadRequest {
  // below root-dir, from buffer_name(): files, directories, patterns
  std::vector<std::string> names;
  // replace clean files whose version differs from the PFS's
  bool replace = false;
  // with replace: also files that a program has changed or has open for writing
  bool force = false;
  std::string backend = {};  // the id of the backend for all files; "": as in the job file
  Part part = {};            // a part of one file; otherwise whole files
};

struct LoadReport {
  std::uint64_t files = 0;    // new in the buffer, or replaced
  std::uint64_t already = 0;  // already in the buffer, clean, in the PFS's version
  std::uint64_t bytes = 0;
  double seconds = 0;
  std::optional<StageFailure> failure;

  bool ok() const { return !failure; }
};

/// Loads on `workers` threads that end before the call returns. Files that the buffer already has
/// in the PFS's version stay. The load is rejected before any data move: for missing or unreadable
/// files, for files in another version without `replace` (EEXIST), if a change would be lost
/// without `force` (EBUSY), and if the space is too small (ENOSPC). After an error or a cancel the
/// buffer has no new name and its space is free again. If the very last step fails for a name (a
/// program made the same name), the load removes the names that it had already given; programs
/// could see these for a moment. Replaced files, and files that a program has changed since, stay:
/// the error gives their number.
///
/// With a part, `names` is one file. The file appears with its size on the PFS and holes for the
/// rest. It is temporary and is never exported whole. `efs ls` and `efs explain` list its parts.
/// Loading another part reads all its parts again into a new file, which replaces the old one. With
/// no part missing it is a whole file.
LoadReport load(const LiveArguments& with, const LoadRequest& request);

}  // namespace efs::stage
