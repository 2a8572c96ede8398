#pragma once
// From the PFS into the buffer. Nothing on the PFS is ever written; a name appears in the buffer only when whole.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "stage/buffer.hpp"
#include "stage/pauses.hpp"
#include "stage/planner.hpp"
#include "stage/progress.hpp"

namespace efs::stage {

class Cache;
class OpenedDirectories;
class PlacedNames;

struct Options {
  unsigned workers = 0;                     // threads at most; 0: as many as the PFS keeps waiting, up to 64
  std::uint64_t transfer_size = 2U << 20U;  // bytes per PFS request
  bool by_rank = false;  // stage-out: in the order of the job file's rules, where time may run out
  std::string partial_tag = {};  // stage-out: of the store that it comes from (partial_tag_of())
  bool has_a_past = false;       // stage-out: an earlier process of the store may have been killed at work, or a transfer of this one have failed where it could not clean up
  std::string receipt_name = {};  // stage-out: that the receipt is to get in results-dir: no result can have it; "": none
  PlacedNames* placed = nullptr;  // what the store has put under names of results-dir; null: what is there is nobody else's. Outlives the transfer
  OpenedDirectories* opened = nullptr;  // stage-out: which directories there a process of the store has opened to their owner; outlives the transfer
  Cache* cache = nullptr;  // stage-in: of reusable inputs; outlives the transfer
  std::function<Status(std::uint64_t bytes)> wait_for_turn = {};  // load, unload: called once, before anything moves; an error ends it
  Pauses* pauses = &real_pauses();  // where the time goes by in which another's name is waited for
};

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
  std::uint64_t reused_files = 0, reused_bytes = 0;  // of those: from the cache, without a byte of the PFS's
  std::uint64_t not_kept = 0;   // reusable files that the cache did not take; `not_kept_reason` of the first
  std::string not_kept_reason;
  double seconds = 0;
  std::optional<StageFailure> failure;  // the first one; it stopped the others
  bool ok() const { return !failure; }
};

/// Stages the plan in, except for what the buffer holds already in the plan's version (an earlier stage-in was
/// interrupted), on threads that end before it returns. A plan with problems is refused (EINVAL).
/// The first failure sets progress.cancel, which stops the other threads. After one (ECANCELED when cancelled, ESTALE for a file that changed while it was read, ENOSPC for a full
/// buffer) what was published stays and everything else is abandoned: the caller discards the instance.
StageReport stage_in(const Plan& plan, Buffer& buffer, PfsIo& pfs, const Options& options, Progress& progress);

}  // namespace efs::stage
