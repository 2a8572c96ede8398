// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The life of one job in the worker: plan, import, mount, serve, unmount, export. Runs as the job's
// user. This class decides the order; its parts do the work.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/door_memory.hpp"
#include "control/server.hpp"
#include "daemon/content_service.hpp"
#include "daemon/control_api.hpp"
#include "daemon/job_recorder.hpp"
#include "daemon/job_status.hpp"
#include "daemon/job_store.hpp"
#include "daemon/job_tasks.hpp"
#include "daemon/job_watchers.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/mount_service.hpp"
#include "daemon/start_outcome.hpp"
#include "daemon/stop_coordinator.hpp"
#include "daemon/transfer_service.hpp"

namespace efs::daemon {

struct InstanceOptions {
  config::JobConfig config;
  std::string directory;  // of the instance; contains the control socket
  uid_t owner = 0;
  std::optional<std::uint32_t> root_mode;  // nullopt: the mode of root-dir
  MountOptions mount;
  pid_t supervisor = 0;
  unsigned takeovers = 0;   // number of dead workers before this one
  std::string predecessor;  // how the last dead worker ended, for the log
  // a predecessor unmounted for a StopRequest with is_unusual()
  bool stop_is_unusual = false;
  fs::OpenTable* opens = nullptr;  // shared by all workers; null: each worker has its own
};

class Instance {
  using Clock = std::chrono::steady_clock;
  using Stopped = control::replies::Stopped;

 public:
  /// `turns`: the client that waits for turns at the PFS, for import and export.
  Instance(InstanceOptions options, SupervisorClient& supervisor, SlotClient& turns);
  ~Instance();

  /// Opens the control socket. Call run() afterwards.
  Status listen();
  /// Runs the whole life. Returns when the results are exported or dropped. Returns the exit code
  /// of the worker.
  int run();

  /// As ControlApi::request_stop(). Call after listen().
  std::uint64_t request_stop(StopRequest request) { return api_->request_stop(request); }

 private:
  /// Calls start() or take_over(). Converts exceptions to errors.
  Status begin();
  Status start();
  /// Replaces start() in a successor. The store exists. The mount exists unless it was unmounted
  /// before.
  Status take_over();
  Status open_files();
  void open_session();
  void publish();
  bool end_fetches(const StopRequest& request);
  void end_transfers(const StopRequest& request);
  /// Returns the end that a predecessor recorded in the manifest, or nullopt if the instance had
  /// not ended.
  std::optional<image::Manifest> noted_end() const;
  int finish(const image::Manifest& noted);
  int fail_takeover(const Error& error);
  int fail_start(const Error& error);
  void give_back_what_was_kept(bool in_a_hurry = false);
  void tear_down();
  void close_socket() const;
  void enter(Event event);
  void act_on(const Step& step, Event event);
  void note(Moment moment);
  // instance_stop.cpp; each bool: the life is over
  StopRequest await_stop(bool& was_unsaved);
  bool serve_until_stopped();
  bool stop(StopRequest& request, bool was_unsaved);
  bool give_stop_up(const StopRequest& request, const char* reason);
  bool stage_out(const StopRequest& request);
  /// Writes the receipt, ends or keeps the store, and answers. `keep`: the store is wanted after a
  /// success, too.
  bool end_export(const StopRequest& request, stage::Receipt receipt, bool keep);
  /// Writes the receipt and returns the answer so far. `code`: the exit code of the export; becomes
  /// 1 if the receipt could not be written to its usual path.
  Stopped tell_receipt(const stage::Receipt& receipt, bool keep, int& code);
  /// Ends the store after the last export, or leaves one that is kept. Adds errors to the summary
  /// in `outcome`. Returns false if the store that stays could not be left in order.
  bool part_with_store(const StopRequest& request, bool is_all_back, Stopped& outcome);
  void end_without_export(const StopRequest& request);
  Status give_store_up();
  static SlotLimits turn_limits(const StopRequest& request);
  StopRequest begin_to_end(const StopRequest& request);
  void finish_stop(const StopRequest& request, StopAnswer outcome);
  // instance_busy.cpp: a stop while programs use the mount
  /// Unmounts. If the mount is busy and the stop has a deadline, also calls unload_for().
  /// `unloaded`: its outcome, for the answer. On success no task is left.
  Status unmount_or_unload(StopRequest& request, std::string& unloaded);
  bool may_unload(const StopRequest& request, const Error& why_not_unmounted) const;
  /// Exports the files that no program writes to. Returns a text about the outcome.
  std::string unload_for(const StopRequest& request);
  /// Reports EBUSY to the client, because programs use the mount. The instance continues.
  void refuse_stop(const StopRequest& request, const Error& why, std::string unloaded);
  // deadline_exit.cpp: the PFS does not answer and the deadline has passed
  void leave_without_pfs() noexcept;
  Stopped leave_what_is_left();
  Stopped drop_what_is_left(const StopRequest& request);
  /// The same for a start that is cancelled. No results exist that would justify a wait.
  void give_up_without_pfs() noexcept;
  void give_back_or_remove();
  /// The end of a life whose outcome is told, although a fetch still waits for the PFS.
  void end_with_fetches() noexcept;
  void end_start();
  std::string why_late() const;
  stage::Receipt receipt_of_what_is_left();

  InstanceOptions options_;  // the parts complete options_.config
  SupervisorClient& supervisor_;
  SlotClient& turns_;
  const JobFacts facts_;
  stage::Progress progress_;  // of the import and of the export
  StartOutcome start_outcome_;
  JobStore store_;
  JobWatchers watchers_;     // reads status_
  ContentService contents_;  // uses transfers_ and tasks_, until their ends
  MountService mount_;       // uses store_, watchers_, stops_, contents_
  TransferService transfers_;
  JobTasks tasks_;  // they use transfers_
  // from listen() on
  std::unique_ptr<JobRecorder> recorder_;
  std::unique_ptr<JobStatus> status_;
  std::unique_ptr<ControlApi> api_;
  std::unique_ptr<control::Server> server_;  // uses all other parts; destroyed first
  ThreadTimers timers_;
  StopCoordinator stops_;  // calls deadline_
  Deadline deadline_;      // last: its threads use the members above
};

}  // namespace efs::daemon
