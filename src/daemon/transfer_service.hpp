// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transfers of a job between the PFS and its buffer: the import before programs run, loads and
// unloads meanwhile, and the export. All share the limits of the job file and the turns at the PFS.

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/job_store.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/slot_keeper.hpp"
#include "daemon/turn_gate.hpp"
#include "daemon/unloaded.hpp"
#include "fs/staging.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"
#include "stage/live/move.hpp"
#include "stage/options.hpp"
#include "stage/pfs/paced_pfs.hpp"
#include "stage/plan/planner.hpp"

namespace efs::daemon {

/// load(), unload(), unload_until(), move(), drain(), drop(), fetch(), the functions of
/// TierTransfers and the figures are thread-safe. evict() is for one thread. The other functions
/// are for the thread of the instance. The buffer must be open, except for inherit() and the
/// figures.
class TransferService final : public StatusSource,
                              public LiveTransfers,
                              public DrainTransfers,
                              public FetchTransfers,
                              public EvictTransfers,
                              public TierTransfers {
 public:
  /// All outlive this object. The import notes in `config` the files that lists name.
  struct Parts {
    config::JobConfig& config;
    std::string directory;  // of the instance
    JobStore& store;
    SlotClient& turns;
    stage::Progress& progress;       // of the import and of the export
    KeptFigures* figures = nullptr;  // outlive the worker; null: there are none
  };

  explicit TransferService(Parts parts);

  // -- the import

  /// Takes over the facts of the import and of the unloads of a dead worker, if this worker is its
  /// `successor`. Those of an earlier instance are ignored.
  void inherit(bool successor);
  /// Plans and imports. Imports only what is missing if an earlier instance left the buffer. Calls
  /// `planned` before the first byte moves. Fails if the job cannot start.
  Status import_inputs(const std::function<void()>& planned);

  // -- while programs run

  control::replies::TaskOutcome load(const stage::LoadRequest& what,
                                     stage::Progress& progress) override;
  control::replies::TaskOutcome unload(const stage::UnloadRequest& what,
                                       stage::Progress& progress) override;
  /// An unload of a stop with a deadline: exports in the order of the job file.
  control::replies::TaskOutcome unload_until(const stage::UnloadRequest& what,
                                             stage::Progress& progress, const SlotLimits& limits);

  control::replies::TaskOutcome move(const MoveRequest& what, stage::Progress& progress) override;

  /// Exports these files, which a rule with `drain` covers, as an unload does. Returns the receipt.
  stage::Receipt drain(std::vector<std::string> paths, std::vector<std::string> sets,
                       stage::Progress& progress) override;
  /// Drops these versions. The receipt of the stop lists their files.
  stage::Dropped drop(const std::vector<stage::OldVersion>& versions,
                      stage::Progress& progress) override;

  /// Fetches the content of a remote file. Without a turn, if a program may wait for it.
  FetchOutcome fetch(std::uint64_t ino, stage::Progress& progress) override;

  /// Empties the containers that a dead worker has filled in part: their room would count twice,
  /// because the whole content has reserved room. Call it before fetches begin.
  void end_dead_fetches();
  void end_evictions() override;
  stage::Eviction evict(std::uint64_t bytes, stage::Progress& progress) override;

  Space space() override;

  Space space_of(unsigned place) override;
  std::vector<fs::Staging::MoveCandidate> move_candidates(unsigned place) override;
  stage::Moves move_files(std::span<const std::string> paths, unsigned place,
                          stage::Progress& progress) override;

  bool takes_turns() const override { return its_.turns.takes_turns(); }

  Status begin_turn(std::uint64_t bytes, const stage::Progress& progress) override;
  void end_turn() override;

  bool is_turn_awaited() const override { return in_gate_.is_awaited(); }

  // -- the export

  /// Exports the results; returns the receipt. `limits`: of the stop; with an end, exports in the
  /// order of the job file. The caller holds `turn` until it has written the receipt.
  stage::Receipt export_results(const SlotLimits& limits, std::optional<SlotClient::Held>& turn);
  /// Marks what was exported, for a buffer that stays in use.
  void book(const stage::Receipt& receipt);
  /// Adds to the receipt of a stop the results that `last`, the one of a failed stop, lists as
  /// exported, and those that unloads exported.
  void add_earlier(stage::Receipt& receipt, const stage::Receipt* last) const;

  /// The export has failed: it may have left partial files on the PFS.
  void note_failure() { may_have_left_partials_ = true; }

  // -- figures and tools

  void add_status(control::replies::Status& status) override;
  /// The slowest files of the import by this process.
  std::vector<stage::TimedFile> slowest_inputs() const;
  stage::Options options();
  /// Returns a PFS interface with the limits of the job file.
  stage::PacedPfs paced_pfs(const std::atomic<bool>& cancel);

 private:
  stage::Moves move_by(std::span<const std::string> paths, unsigned place, fs::Staging::Pins pins,
                       stage::Progress& progress);
  /// False if there is no room for so many bytes, and none can be made.
  bool make_room_ahead(fs::Filesystem& files, std::uint64_t bytes);
  stage::Receipt unload_by(const stage::UnloadRequest& what, stage::Progress& progress,
                           const SlotLimits& limits);
  Result<stage::Plan> plan_inputs(stage::PfsIo& pfs, fs::Staging& staging);
  void record_inputs_in_place(const stage::Plan& plan, stage::PfsIo& pfs, fs::Staging& staging);
  Status record_plan(stage::Plan& plan);
  void inherit_listed();
  void inherit_staged_in();
  void record_staged_in(const stage::StagedIn& staged_in, std::vector<stage::TimedFile> slowest);
  void note(Moment moment);
  // a buffer of an earlier instance: transfer_resume.cpp
  Result<std::uint64_t> subtract_what_is_there(stage::Plan& plan, fs::Staging& staging);
  Status disown_removed(fs::Staging& staging);
  void forgive_what_is_the_jobs(stage::Plan& plan, fs::Staging& staging) const;
  Status refuse_foreign(const stage::Plan& plan, fs::Staging& staging);
  std::function<Status(std::uint64_t)> turn_for(queue::Direction direction,
                                                const stage::Progress& progress,
                                                std::optional<SlotClient::Held>& turn,
                                                SlotLimits limits);

  const Parts its_;
  stage::Throttle throttle_;
  std::atomic<bool> has_failed_sync_{false};  // stage::Dropped::has_failed_sync of any drop
  stage::ScratchPool fetch_buffers_;
  TurnGate in_gate_;                                 // of loads and fetches
  std::optional<SlotClient::Held> fetch_turn_;       // with in_gate_
  std::atomic<bool> may_have_left_partials_{false};  // a transfer failed
  stage::Refusals refusals_;                         // for evict()
  Unloaded unloaded_;
  mutable Mutex mutex_;  // rank 90 (leaf)
  std::optional<stage::StagedIn> staged_in_ EFS_GUARDED_BY(mutex_);
  std::vector<stage::TimedFile> slowest_inputs_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::daemon
