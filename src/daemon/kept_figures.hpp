#pragma once
// Figures of an instance that outlive a worker: memory that the supervisor shares with every worker
// it forks. The supervisor itself reads none of it.

#include <atomic>
#include <memory>

#include "fuse/counters.hpp"
#include "stage/out/receipt.hpp"

namespace efs::daemon {

struct KeptFigures {
  fuse::Counters counters;
  stage::StagedIn staged_in;            // written once, before:
  std::atomic<bool> has_staged_in{false};
};

struct UnmapFigures {
  void operator()(KeptFigures* figures) const;
};
using KeptFiguresPtr = std::unique_ptr<KeptFigures, UnmapFigures>;

/// Zeros; null where there is no memory for it: then each worker begins anew.
KeptFiguresPtr make_kept_figures();

}  // namespace efs::daemon
