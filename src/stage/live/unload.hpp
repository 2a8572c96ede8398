// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exports files to results-dir while programs run, by the code of stage-out.

#include <string>
#include <vector>

#include "stage/export/receipt.hpp"
#include "stage/live/live_transfer.hpp"
#include "stage/live/range.hpp"

namespace efs::stage {

struct UnloadRequest {
  // below root-dir, from buffer_name(): files, directories, patterns
  std::vector<std::string> names;
  // also files that a program may write to during the copy; the receipt marks them as unverified
  bool as_is = false;
  bool remove = false;  // remove the name from the buffer after the export
  // only files that a stop would export; otherwise files of every class
  bool results_only = false;
  // the names are files, and no patterns; the receipt does not list those that do not exist
  bool are_paths = false;
  // with are_paths: directories of which `names` has all results: each goes whole or not at all
  // (Options::sets)
  std::vector<std::string> sets = {};
  Part part;  // a part of one file; otherwise whole files
};

/// Exports the dirty files of the request, of every class, as stage_out() does: a result gets its
/// real name only when it is whole and durable. An error concerns one entry.
///
/// The worker does not see passthrough writes. So a file is copied only if fs::Staging::writers()
/// proves that no program can write to it when the copy begins, and if no program has opened it for
/// writing by the end of the copy. The copy then equals the file, and the file becomes clean.
/// Without this proof the entry fails with the reason of EBUSY. With `as_is` the file is copied
/// anyway; the copy is unverified and the file stays dirty.
///
/// With `remove`, files that are clean after the copy, or were before, lose their name in the
/// buffer. A program that has such a file open keeps it.
///
/// With a part, the export writes a new version of the file in results-dir in which the bytes of
/// the part are replaced; the new version replaces the file whole. ENOENT if results-dir has no
/// such file. The file in the buffer stays dirty and is not removed. A version from elsewhere, or
/// one that changes meanwhile, is a conflict as for whole files. With on-conflict: keep-both the
/// part is not exported.
Receipt unload(const LiveArguments& with, const UnloadRequest& request);

/// The reason in the entry of a file that was removed from the buffer as requested.
inline constexpr const char* removed_from_buffer = "removed from the buffer";

/// For people: totals, and the names of files that failed, are unverified or stay in the buffer.
std::string describe_unload(const Receipt& receipt);

/// The errno of the first entry that was not exported; 0 if all were.
int error_code(const Receipt& receipt);

}  // namespace efs::stage
