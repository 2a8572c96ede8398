// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Imports files from the PFS into the buffer. Never writes to the PFS. A name appears in the buffer
// only when its file is whole.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stage/copy/progress.hpp"
#include "stage/copy/slowest_files.hpp"
#include "stage/import_sink.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pauses.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

struct StageFailure {
  std::string path;  // relative to root_dir; "" if the failure concerns no single file
  Error error;       // the reason, without the path
};

struct StageReport {
  std::uint64_t files = 0;  // published
  std::uint64_t kept = 0;   // already imported by an earlier stage-in
  std::uint64_t directories = 0;
  std::uint64_t symlinks = 0;
  std::uint64_t bytes = 0;  // of the files published
  // of those: from the cache, without reading the PFS
  std::uint64_t reused_files = 0, reused_bytes = 0;
  // reusable files that the cache did not keep; `not_kept_reason`: for the first
  std::uint64_t not_kept = 0;
  std::string not_kept_reason;
  // entries of the plan that vanished, as config::Vanished permits; in byte order of paths
  std::vector<PlanSkip> skipped;
  double seconds = 0;
  std::vector<TimedFile> slowest;       // at most ten, the slowest first
  std::optional<StageFailure> failure;  // the first failure; it stopped the other threads

  bool ok() const { return !failure; }
};

/// Imports the plan on threads that end before the call returns. Skips files that the buffer
/// already has in the plan's version (from an interrupted stage-in). Rejects a plan with problems
/// (EINVAL). The first failure sets progress.cancel, which stops the other threads. Errors:
/// ECANCELED after a cancel, ESTALE for a file that changed during its copy, ENOSPC for a full
/// buffer. After a failure the published files stay and all others are abandoned; the caller then
/// discards the instance.
StageReport stage_in(const Plan& plan, ImportSink& buffer, PfsIo& pfs, const Options& options,
                     Progress& progress);

}  // namespace efs::stage
