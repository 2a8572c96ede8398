#pragma once
// Bringing out what the buffer of a dead instance holds.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "image/image.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::image {

struct SalvageOptions {
  std::string to;    // directory; "": the job's results-dir
  bool all = false;  // everything, clean inputs and temporary files too; needs `to`
};

/// What a stage-out would bring out, in bytes and names: dirty and persistent by the image's job
/// file.
struct Holdings {
  std::uint64_t files = 0, bytes = 0;  // all regular files
  // files and links that a stage-out would bring out
  std::uint64_t unsaved_files = 0, unsaved_bytes = 0;
};

Result<Holdings> holdings_of(Image& image);

/// What a stop would do besides, in numbers: directories that it would make or change, inputs that
/// it would remove, and results that were brought to results-dir and are not there, as far as can
/// be seen. Asks the PFS.
Result<std::uint64_t> left_to_do(Image& image);

/// Each name that is in it, as `efs ls` tells of it (stage::inventory_entry()).
Status list_names(Image& image, const std::function<void(const nlohmann::json&)>& tell);

/// What the receipt is called in the directory that it goes to: as stage::salvage_receipt_name()
/// says; elsewhere than in results-dir no name of the image's.
std::string receipt_name_of(Image& image, const SalvageOptions& options);

/// Requires: a hold to bring out. Writes by the machinery of a stage-out (partial, fsync, rename)
/// and says of each entry what vouches for it: "verified" names and attributes from checksummed
/// records, "as-found" content that nothing vouches for. The receipt is not written to a file. The
/// image stays as it is, but for what it notes of names that others may use
/// (stage/versions/placed_names.hpp). Keeps to the job file's max-rate, max-ops and retries. `pfs`:
/// where no results of other nodes are to be heeded.
stage::Receipt salvage(Image& image, const SalvageOptions& options, stage::Progress& progress,
                       stage::PfsIo& pfs = stage::posix_pfs());

}  // namespace efs::image
