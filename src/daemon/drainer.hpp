// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sends the results of output rules with `drain` to results-dir while the job runs. A thread
// follows the changes that programs make and chooses what is due; a task of the kind `drain`
// exports it, as an unload does.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "daemon/change_inbox.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/drain_candidates.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/slot_keeper.hpp"
#include "daemon/tasks.hpp"
#include "fs/filesystem.hpp"

namespace efs::daemon {

/// One thread calls begin() and end(). add_status() is thread-safe. The thread of this object makes
/// no call to the PFS, so end() does not wait for the PFS. While no program changes a file that a
/// rule covers, and none is due, the thread sleeps without an end.
class Drainer final : public StatusSource {
 public:
  /// All outlive end(), and `figures` this object.
  struct Parts {
    const config::JobConfig& config;
    Tasks& tasks;
    DrainTransfers& transfers;
    const SlotClient& turns;
    KeptDrained* figures = nullptr;  // outlive the worker; null: there are none
  };

  explicit Drainer(Parts parts);
  ~Drainer() override;

  /// Covers the files that exist, and the changes of programs from here on. Fails if no thread can
  /// be started.
  Status begin(fs::Filesystem& files);
  /// No further export begins. One that runs is a matter of Tasks::close(). Without effect before
  /// begin() and after end().
  void end();

  void add_status(control::replies::Status& status) override;

  /// True if results are on their way home. Thread-safe.
  bool has_due() const { return due_ > 0; }

 private:
  using Time = DrainSchedule::Time;
  struct Run;
  struct Ending;

  void work(fs::Filesystem& files);
  void step(DrainCandidates& candidates, Time now);
  std::optional<Time> next_look(const DrainCandidates& candidates, Time now) const;
  void begin_run(DrainCandidates& candidates, Time now);
  void end_run(DrainCandidates& candidates, Time now);
  void tell(const DrainOutcome& outcome);
  void tell_dropped(const stage::Dropped& dropped);
  void end_drop(DrainCandidates& candidates, Run& run, Time now);
  /// Tells once if the export has made no progress for long.
  void look_at_run(Time now);
  void set_error(std::string error);

  const Parts its_;
  KeptDrained own_figures_;
  KeptDrained& figures_;
  const std::shared_ptr<ChangeInbox> inbox_;
  fs::Filesystem* files_ = nullptr;  // between begin() and end()
  std::atomic<bool> ending_{false};
  std::atomic<std::uint64_t> due_{0};
  mutable Mutex mutex_;                       // rank 90 (leaf)
  std::string error_ EFS_GUARDED_BY(mutex_);  // "": all went well lately
  // for the thread
  std::shared_ptr<Run> run_;  // null: no export is under way
  Time rest_until_{};
  bool is_failing_ = false;     // and this was logged
  bool exported_last_ = false;  // the last run was one of a batch
  std::jthread thread_;         // last: it uses the members above
};

}  // namespace efs::daemon
