#pragma once
// From the PFS into the buffer. Nothing on the PFS is ever written; a name appears in the buffer
// only when whole.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stage/buffer.hpp"
#include "stage/copy/progress.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pauses.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

struct StageFailure {
  std::string path;  // relative to root_dir; "" where it is no one file's
  Error error;       // what: the reason without the path
};

struct StageReport {
  std::uint64_t files = 0;  // published
  std::uint64_t kept = 0;   // there already, brought in by an earlier stage-in
  std::uint64_t directories = 0;
  std::uint64_t symlinks = 0;
  std::uint64_t bytes = 0;  // of the files published
  // of those: from the cache, without a byte of the PFS's
  std::uint64_t reused_files = 0, reused_bytes = 0;
  // reusable files that the cache did not take; `not_kept_reason` of the first
  std::uint64_t not_kept = 0;
  std::string not_kept_reason;
  // of the plan: they vanished, and may (config::Vanished); byte order of paths
  std::vector<PlanSkip> skipped;
  double seconds = 0;
  std::optional<StageFailure> failure;  // the first one; it stopped the others

  bool ok() const { return !failure; }
};

/// Stages the plan in, except for what the buffer holds already in the plan's version (an earlier
/// stage-in was interrupted), on threads that end before it returns. A plan with problems is
/// refused (EINVAL). The first failure sets progress.cancel, which stops the other threads. After
/// one (ECANCELED when cancelled, ESTALE for a file that changed while it was read, ENOSPC for a
/// full buffer) what was published stays and everything else is abandoned: the caller discards the
/// instance.
StageReport stage_in(const Plan& plan, Buffer& buffer, PfsIo& pfs, const Options& options,
                     Progress& progress);

}  // namespace efs::stage
