#pragma once
// From the buffer to results-dir while programs run, by the machinery of stage-out.

#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"
#include "stage/live/range.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct UnloadRequest {
  // below root-dir, as buffer_name() gives them: files, directories, patterns
  std::vector<std::string> names;
  // also what may be written to meanwhile; the receipt calls such files unverified
  bool as_is = false;
  bool remove = false;  // from the buffer, once results-dir has it
  // of what the names mean, what a stop would bring out; else whatever its class
  bool results_only = false;
  Part part;  // of one file; else the whole
};

/// Brings out what is dirty of the named files, whatever their class, as stage_out() does: whole
/// and durable under its real name or not at all. Every error is one entry's.
///
/// Writes that pass through the kernel are not seen here. A file is copied only if it is proved
/// (fs::Staging::writers) that nobody can write to it when the copy begins, and nobody has opened
/// it for writing when it ends: then the copy is the file, which is clean from then on. Where there
/// is no such proof, the entry failed with EBUSY's reason, or with `as_is` is copied as it is
/// found, unverified, and stays dirty.
///
/// With `remove`, files that are clean then (also those that were before) lose their name in the
/// buffer; a program that has one open keeps it.
///
/// With a part: the bytes of that part replace those of the file that results-dir has, in a new
/// version of that file which takes its place whole; ENOENT where there is none. The file stays
/// dirty, and is not removed. A version of somebody else's, or one that changes meanwhile, is a
/// conflict as of whole files; on-conflict: keep-both keeps the part back.
Receipt unload(const config::JobConfig& config, const UnloadRequest& request, fs::Staging& staging,
               PfsIo& pfs, const Options& options, Progress& progress);

/// What the reason of an entry has whose file is in results-dir only, as was asked for.
inline constexpr const char* removed_from_buffer = "removed from the buffer";

/// For people: totals, and by name what failed, is unverified or stays in the buffer.
std::string describe_unload(const Receipt& receipt);

/// The errno of the first entry that is not at results-dir; 0 where all are.
int error_code(const Receipt& receipt);

}  // namespace efs::stage
