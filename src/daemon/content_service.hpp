// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What moves contents between the buffer and the PFS beside the programs, and that no client has
// asked for: the drain of results, the fetches of remote files, the eviction, and the moves between
// tiers.

#include <memory>
#include <vector>

#include "config/job_config.hpp"
#include "daemon/drainer.hpp"
#include "daemon/evictor.hpp"
#include "daemon/fetcher.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/mover.hpp"
#include "daemon/slot_keeper.hpp"
#include "daemon/tasks.hpp"
#include "daemon/transfer_service.hpp"
#include "fs/filesystem.hpp"

namespace efs::daemon {

/// For the thread of the instance, except fetches() and put_aside().
class ContentService {
 public:
  using Time = Fetcher::Time;

  /// All outlive this object.
  struct Parts {
    const config::JobConfig& config;
    TransferService& transfers;
    const SlotClient& turns;
    KeptFigures* figures = nullptr;  // outlive the worker; null: there are none
  };

  explicit ContentService(const Parts& parts);

  /// Makes the parts that the job needs. `tasks` outlive end_draining().
  void open(Tasks& tasks);
  /// Those that have figures, after open().
  std::vector<StatusSource*> sources();

  Fetcher& fetches() { return fetcher_; }

  fuse::PutAside* put_aside() { return fetcher_.put_aside(); }

  /// From here on requests may wait for contents and for room. Calls nothing of the PFS.
  void begin(fs::Filesystem& files);
  /// From here on contents are fetched, results drained, and tiers kept.
  void go_on(fs::Filesystem& files);
  /// No further drain begins, and no content moves between tiers.
  void end_draining();
  /// Ends fetches and evictions. False: one has not ended at `until`, because the PFS does not
  /// answer. Repeatable.
  bool end_reading(Time until);

 private:
  const Parts its_;
  Fetcher fetcher_;
  std::unique_ptr<Drainer> drainer_;  // null: no rule has drain
  std::unique_ptr<Evictor> evictor_;  // null: nothing may be evicted
  std::unique_ptr<Mover> mover_;      // null: there are no tiers
};

}  // namespace efs::daemon
