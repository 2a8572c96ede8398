#pragma once
// Figures of an instance that outlive a worker: memory that the supervisor shares with every worker
// it forks. The supervisor itself reads none of it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "fuse/counters.hpp"

namespace efs::daemon {

/// The numbers of stage::StagedIn.
struct KeptStagedIn {
  std::uint64_t files = 0, bytes = 0;
  std::uint64_t files_reused = 0, bytes_reused = 0;
  std::uint64_t files_away = 0;
};

// A pointer of a dead worker means nothing to its successor.
static_assert(std::is_trivially_copyable_v<KeptStagedIn>);

struct KeptFigures {
  fuse::Counters counters;
  KeptStagedIn staged_in;  // written once, before:
  std::atomic<bool> has_staged_in{false};
};

struct UnmapFigures {
  void operator()(KeptFigures* figures) const;
};

using KeptFiguresPtr = std::unique_ptr<KeptFigures, UnmapFigures>;

/// Zeros; null where there is no memory for it: then each worker begins anew.
KeptFiguresPtr make_kept_figures();

}  // namespace efs::daemon
