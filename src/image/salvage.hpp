// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exports the contents of a dead instance's buffer.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "image/image.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::image {

struct SalvageOptions {
  std::string to;    // target directory; "": the job's results-dir
  bool all = false;  // exports all files, also clean inputs and temporary files; needs `to`
};

/// The files that a stage-out would export, in bytes and names: dirty and persistent by the store's
/// job file.
struct Holdings {
  std::uint64_t files = 0, bytes = 0;  // all regular files
  // files and links that a stage-out would export
  std::uint64_t unsaved_files = 0, unsaved_bytes = 0;
};

Result<Holdings> holdings_of(Image& image);

/// Returns the number of further actions of a stop, as far as can be seen: directories to create or
/// change, inputs to remove, and exported results that are missing in results-dir. Queries the PFS.
Result<std::uint64_t> left_to_do(Image& image);

/// Reports each name in the store, in the form of `efs ls` (stage::inventory_entry()).
Status list_names(Image& image, const std::function<void(const nlohmann::json&)>& tell);

/// Returns the name of the receipt in its target directory: stage::salvage_receipt_name(). Outside
/// results-dir, a name that no file of the store has.
std::string receipt_name_of(Image& image, const SalvageOptions& options);

/// Exports with the code of a stage-out (partial, fsync, rename). Requires Hold::to_bring_out. Each
/// entry states its guarantee: "verified" for names and attributes from checksummed records,
/// "as-found" for content without a checksum. Writes no receipt file. Does not change the store,
/// except for its record of PFS names that other nodes may use (stage/versions/placed_names.hpp).
/// Keeps to the job file's max-rate, max-ops and retries. `pfs`: the PFS, if no results of other
/// nodes need protection.
stage::Receipt salvage(Image& image, const SalvageOptions& options, stage::Progress& progress,
                       stage::PfsIo& pfs = stage::posix_pfs());

}  // namespace efs::image
