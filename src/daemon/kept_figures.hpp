// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Figures of an instance that outlive a worker, in memory that the supervisor shares with every
// worker it forks. The supervisor itself never reads this memory.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "config/job_config.hpp"
#include "daemon/job_history.hpp"
#include "fuse/counters.hpp"
#include "fuse/door_clients.hpp"
#include "fuse/limits.hpp"
#include "fuse/usage.hpp"

namespace efs::daemon {

/// The numbers of stage::StagedIn.
struct KeptStagedIn {
  std::uint64_t files = 0, bytes = 0;
  std::uint64_t files_reused = 0, bytes_reused = 0;
  std::uint64_t files_away = 0;
};

// A pointer of a dead worker would be invalid in its successor.
static_assert(std::is_trivially_copyable_v<KeptStagedIn>);

/// Results that went home while the job ran, in all workers.
struct KeptDrained {
  std::atomic<std::uint64_t> files{0}, bytes{0};
  std::atomic<std::uint64_t> failures{0};                   // exports that failed
  std::atomic<std::uint64_t> dropped{0}, dropped_bytes{0};  // from the buffer, by `keep`
  std::atomic<std::uint64_t> unsent{0}, unsent_bytes{0};    // and never sent: `to-pfs`
};

/// Contents that were fetched while the job ran, in all workers.
struct KeptFetched {
  std::atomic<std::uint64_t> files{0}, bytes{0};
  std::atomic<std::uint64_t> failures{0};
};

/// Contents that left a full buffer, in all workers.
struct KeptEvicted {
  std::atomic<std::uint64_t> files{0}, bytes{0};
};

/// Contents that moved into a tier and out of it by themselves, in all workers.
struct KeptTier {
  std::atomic<std::uint64_t> in_files{0}, in_bytes{0};
  std::atomic<std::uint64_t> out_files{0}, out_bytes{0};
};

struct KeptTiers {
  std::array<KeptTier, config::most_backends> tiers;  // in their order
};

struct KeptFigures {
  fuse::Counters counters;
  KeptStagedIn staged_in;  // written once, before the flag below
  std::atomic<bool> has_staged_in{false};
  KeptHistory history;
  fuse::Limits limits;
  fuse::DoorTotals door;
  KeptDrained drained;
  KeptFetched fetched;
  KeptEvicted evicted;
  KeptTiers moved;
  // last: its pages stay untouched until they are needed
  fuse::Usage usage;
};

struct UnmapFigures {
  void operator()(KeptFigures* figures) const;
};

using KeptFiguresPtr = std::unique_ptr<KeptFigures, UnmapFigures>;

/// Returns zeroed figures. Returns null if there is no memory; each worker then starts with its own
/// figures.
KeptFiguresPtr make_kept_figures();

}  // namespace efs::daemon
