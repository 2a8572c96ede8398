// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The life of one job in the worker: plan, import, mount, serve, unmount, export. Runs as the job's
// user.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>

#include "base/door_memory.hpp"
#include "base/mutex.hpp"
#include "base/timer_thread.hpp"
#include "config/job_config.hpp"
#include "control/requests.hpp"
#include "control/server.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/mount_limits.hpp"
#include "daemon/slot_keeper.hpp"
#include "daemon/stop_coordinator.hpp"
#include "daemon/store_setup.hpp"
#include "daemon/supervisor_client.hpp"
#include "daemon/tasks.hpp"
#include "daemon/unloaded.hpp"
#include "daemon/watchers.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "fuse/session.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"
#include "stage/import/reuse.hpp"
#include "stage/live/unload.hpp"
#include "stage/options.hpp"
#include "stage/pfs/opened_directories.hpp"
#include "stage/pfs/paced_pfs.hpp"
#include "stage/plan/planner.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::daemon {

struct InstanceOptions {
  config::JobConfig config;
  std::string directory;  // of the instance; contains the control socket
  uid_t owner = 0;
  bool privileged = false;  // the supervisor is root
  bool daemon_io = false;   // do not use passthrough, even if the kernel offers it
  bool writeback = false;   // the kernel collects writes; excludes passthrough
  std::uint64_t mount_flags = 0;
  std::optional<std::uint32_t> root_mode;  // nullopt: the mode of root-dir
  std::chrono::microseconds spin{50};      // see fuse/request_loop.hpp
  bool join_callers = true;                // see fuse/request_loop.hpp
  std::string source;                      // the source that mount(8) shows
  pid_t supervisor = 0;
  unsigned takeovers = 0;   // number of dead workers before this one
  std::string predecessor;  // how the last dead worker ended, for the log
  // a predecessor unmounted for a StopRequest with is_unusual()
  bool stop_is_unusual = false;
  KeptFigures* figures = nullptr;  // shared by all workers; null: each worker has its own
  DoorMemory* door = nullptr;      // likewise; null: the mount has no door
  fs::OpenTable* opens = nullptr;  // likewise
};

// The interval of progress lines to a client that waits.
constexpr auto progress_interval = std::chrono::milliseconds(250);

// The advice after a stop with a deadline: no daemon remains that could be stopped again.
constexpr const char* way_out_of_image = "export them: efs salvage";

// The time at the end for files that hold no user data and may be on a hanging file system.
constexpr auto patience_with_trifles = std::chrono::seconds(5);

class Instance {
  using Clock = std::chrono::steady_clock;

 public:
  /// `turns`: the client that waits for turns at the PFS, for import and export.
  Instance(InstanceOptions options, SupervisorClient& supervisor, SlotClient& turns);
  ~Instance();

  /// Opens the control socket. Call run() afterwards.
  Status listen();
  /// Runs the whole life. Returns when the results are exported or dropped. Returns the exit code
  /// of the worker.
  int run();

  /// Requests a stop, as `efs stop` does. Signals use this, too. Returns the ticket that
  /// finish_stop() will complete.
  std::uint64_t request_stop(StopRequest request);

 private:
  /// Calls start() or take_over(). Converts exceptions to errors.
  Status begin(bool successor);
  Status start();
  /// Replaces start() in a successor. The store exists. The mount exists unless it was unmounted
  /// before.
  Status take_over();
  /// Returns the end that a predecessor recorded in the manifest, or nullopt if the instance had
  /// not ended.
  std::optional<image::Manifest> noted_end() const;
  int finish(const image::Manifest& noted);
  void record_left(image::ShutdownState left);
  Status open_watchers();
  /// For a takeover. Does not wait and cannot fail.
  void open_watchers_later();
  std::vector<fuse::EventSink*> sinks();
  void open_session();
  Status go_on_without(const image::Manifest& before);
  Status open_store();
  /// Opens the cache of inputs. Without a usable cache, efs imports everything from the PFS.
  void open_cache();
  stage::Options stage_options() const;
  void record_merge_start();
  void record_mount_point(bool takeover);
  Status open_placed();
  void shut_what_was_opened();
  Status book_what_is_out();
  Status open_merging();
  Status take_after_root_dir(gid_t gid);
  Status refuse_changed_contents();
  void report_recovery();
  /// Returns the PFS interface for results. With several nodes it never replaces another node's
  /// results.
  stage::PfsIo& results_pfs();
  SupervisorClient* passthrough_registry();
  /// Serves what waits for a limit, and what comes from now on, at once.
  void lift_limits();
  /// Registers one file of each backend with the kernel, to learn whether passthrough works. The
  /// connection must exist.
  void probe_passthrough();
  Status serve_in_thread(UniqueFd fuse, std::optional<fuse::InitRequest> init);
  void record_resumed();
  void record_begun();
  void catch_up_with_predecessor();
  Status serve(UniqueFd fuse, const std::optional<fuse::InitRequest>& init);
  void put_manifest_right();
  Status drop_mount(const std::string& path);
  Status drop_former_mount(const image::Manifest& before);
  Status prepare_mount_point();
  Status claim_mount_point();
  Status settle_former(const image::Manifest& before);
  Status refuse_second_store(const image::Manifest& before);
  Status prepare_manifests(bool takeover);
  fs::Filesystem::Options filesystem_options(mode_t root_mode, bool same_boot, bool takeover) const;
  std::unexpected<Error> not_opened(const Error& error) const;
  Status open_filesystem(bool takeover);
  Status go_on_with_store(bool same_boot);
  Result<stage::Plan> plan_inputs(stage::PfsIo& pfs, fs::Staging& staging);
  /// For results that replace their inputs: notes the imported versions.
  void record_inputs_in_place(const stage::Plan& plan, stage::PfsIo& pfs, fs::Staging& staging);
  Status plan_and_stage_in();
  Status keep_listed(std::map<std::string, std::string> listed);
  void inherit_listed();
  void keep_staged_in(const stage::StagedIn& staged_in);
  void inherit_staged_in();
  /// Returns the bytes that the cache can free for this job if cache and store share one file
  /// system.
  std::uint64_t spare_in_cache();
  Result<std::uint64_t> subtract_what_is_there(stage::Plan& plan, fs::Staging& staging);
  Status mount();
  Status wait_for_kernel();
  StopRequest await_stop(bool& was_unsaved);
  bool serve_until_stopped();
  bool stop(StopRequest& request, bool was_unsaved);
  bool give_stop_up(const StopRequest& request, const char* reason);
  Status unmount(const StopRequest& request);
  Status unmount_for(StopRequest& request);
  /// Calls unmount_for(). If the mount is busy and the stop has a deadline, also calls drain().
  /// `drained`: the outcome of drain(), for the answer. On success no task is left.
  Status unmount_or_drain(StopRequest& request, std::string& drained);
  /// Reports EBUSY to the client, because programs use the mount. The instance continues.
  void refuse_stop(const StopRequest& request, const Error& why, std::string drained);
  void await_session_end();
  void say_that_mount_is_elsewhere();
  Status merge_from_now_on();
  /// Returns a PFS interface with the limits of the job file. All transfers of the instance share
  /// these limits.
  stage::PacedPfs paced_pfs(const std::atomic<bool>& cancel,
                            stage::PfsIo& pfs = stage::posix_pfs());
  /// Returns true if the life is over: all results are exported, or the deadline has passed.
  bool stage_out(const StopRequest& request);
  /// Writes the receipt, ends or keeps the store, and answers. Returns as stage_out(). `keep`: the
  /// store is wanted after a success, too.
  bool end_export(const StopRequest& request, stage::Receipt receipt, bool keep);
  /// Writes the receipt and returns the answer so far. `code`: the exit code of the export; becomes
  /// 1 if the receipt could not be written to its usual path.
  control::Json tell_receipt(const stage::Receipt& receipt, bool keep, int& code);
  /// Ends the store after the last export, or leaves it if keep_image_. Adds errors to the summary
  /// in `outcome`. Returns false if the store that stays could not be left in order.
  bool part_with_store(const StopRequest& request, bool is_all_back, control::Json& outcome);
  void end_without_export(const StopRequest& request);
  static SlotLimits turn_limits(const StopRequest& request);
  Status disown_removed(fs::Staging& staging);
  void forgive_what_is_the_jobs(stage::Plan& plan, fs::Staging& staging) const;
  Status refuse_foreign(const stage::Plan& plan, fs::Staging& staging);
  /// Writes the state of the store that stays. Returns the first error but completes the other
  /// steps. Records the contents of each file until `end`, because this has to look at each file.
  Status leave_image(image::ShutdownState left, std::optional<Clock::time_point> end = {});
  Status give_store_up();
  std::string record_contents(std::optional<Clock::time_point> end);
  void give_back_what_was_kept(bool in_a_hurry = false);
  void keep_house();
  void tear_down();
  void close_socket() const;
  /// Exits the process with `code` if closing takes too long.
  void close_watchers(int code);
  void remove_mount_point();
  control::Json handle(const control::Json& request, const control::Server::Progress& progress);
  control::Json handle_wait(bool starter, const control::Server::Progress& progress);
  control::Json handle_stop(const control::requests::Stop& asked,
                            const control::Server::Progress& progress);
  control::Json handle_wait_end(const control::requests::WaitEnd& request,
                                const control::Server::Progress& progress);
  control::Json answer_without_outcome(const StopRequest& wanted);
  control::Json outcome_for(const StopRequest& wanted, bool with_receipt);
  bool is_starting();
  void give_up_start();
  bool is_stopping(std::uint64_t ticket);
  // instance_files.cpp: verbs for files while programs run
  control::Json handle_files(const std::string& verb, const control::Json& request,
                             const control::Server::Progress& progress);
  control::Json handle_load(const control::requests::Load& request);
  control::Json handle_unload(const control::requests::Unload& request);
  control::Json handle_ls(const control::requests::List& request,
                          const control::Server::Progress& progress);
  control::Json handle_explain(const control::requests::Explain& request);
  control::Json handle_set(const control::requests::Set& request);
  control::Json handle_wait_task(const control::requests::WaitTask& request,
                                 const control::Server::Progress& progress);
  control::Json handle_cancel(const control::requests::Cancel& request);
  Result<std::vector<std::string>> names_in(const std::vector<std::string>& paths) const;
  control::Json unload_now(const stage::UnloadRequest& what, stage::Progress& progress,
                           const SlotLimits& limits);
  std::function<Status(std::uint64_t)> turn_for(queue::Direction direction,
                                                const stage::Progress& progress,
                                                std::optional<SlotClient::Held>& turn,
                                                SlotLimits limits);
  /// Adds to a running task the state of its wait for the PFS.
  void tell_turn(control::Json& task) const;
  void add_identity(control::Json& status) const;
  void add_backends(control::Json& status) const EFS_REQUIRES(mutex_);
  std::string why_daemon_io() const EFS_REQUIRES(mutex_);
  /// Adds the figures of the store and of the session, which must be ready_.
  void add_store(control::Json& status) const EFS_REQUIRES(mutex_);
  control::Json status_now();
  /// Adds the number of files that a stage-out would export now, and their bytes. Adds nothing if a
  /// walk over the names takes too long, because programs wait meanwhile.
  void add_changed(control::Json& status);
  control::Json progress_now();
  control::Json status_file_now();
  void enter(Event event);
  void act_on(const Step& step, Event event);
  Status was_done_as(const StopRequest& wanted, const StopRequest& done) const;
  /// Calls StopCoordinator::begin_to_end().
  StopRequest begin_to_end(const StopRequest& request);
  void finish_stop(const StopRequest& request, control::Json outcome);
  void add_brought_before(stage::Receipt& receipt);
  /// Writes the receipt. Records its path and content in `outcome`. Returns false if the receipt
  /// could not be written to its usual path.
  bool leave_receipt(const stage::Receipt& receipt, control::Json& outcome);
  // instance_drain.cpp: a stop with a deadline while programs use the mount
  bool may_drain(const StopRequest& request, const Error& why_not_unmounted) const;
  /// Returns the outcome, like that of an unload. Returns nullopt if the PFS did not answer in
  /// time; the task then continues.
  std::optional<control::Json> drain(const StopRequest& request);
  bool end_tasks(const StopRequest& request);
  bool has_drained(std::uint64_t task, const StopRequest& request,
                   std::optional<Clock::time_point> StopTimes::* end);
  void say_what_for(const char* waits_for);
  // instance_record.cpp: the facts of the job for its receipt and its report
  void note(Moment moment);
  /// Returns the work that samples the use of the buffer; null if there is no report.
  fuse::DueWork* space_samples();
  stage::JobCounters job_counters();
  stage::JobSpace job_space();
  stage::MissedInputs missed_inputs(std::chrono::milliseconds time);
  /// Call when the last file is exported. Asks root-dir for names: at most some seconds, and at
  /// most a part of the time that the stop has left.
  void add_record(stage::Receipt& receipt, const StopRequest& request);
  stage::JobRecord record_of_job(const stage::Receipt& receipt, const StopRequest& request);
  /// Writes the report beside the receipt, if the job file wants one, and adds its path to
  /// `outcome`. Removes the report of an earlier stop otherwise.
  void leave_report(const stage::Receipt& receipt, const StopRequest& request,
                    control::Json& outcome);
  // deadline_exit.cpp: the PFS does not answer and the deadline has passed
  void leave_without_pfs() noexcept;
  control::Json leave_what_is_left();
  control::Json drop_what_is_left(const StopRequest& request);
  /// The same for a start that is cancelled. No results exist that would justify a wait.
  void give_up_without_pfs() noexcept;
  void end_start();
  std::string why_late() const;
  stage::Receipt receipt_of_what_is_left();
  void fail_with(control::Json failure);
  void tell_failure(control::Json failure);

  InstanceOptions options_;  // the start determines merge_since
  SupervisorClient& supervisor_;
  SlotClient& turns_;
  std::unique_ptr<control::Server> server_;
  Store store_;
  std::unique_ptr<stage::Cache> cache_;
  std::unique_ptr<stage::InputSharer> sharer_;  // outlives filesystem_, which reports changes to it
  std::unique_ptr<fs::Filesystem> filesystem_;
  // set and reset under mutex_; declared before session_, which reports requests to it
  std::unique_ptr<Watchers> watchers_;
  std::unique_ptr<fuse::DueWork> space_samples_;  // used by session_ and its requests
  MountLimits limits_;                            // used by session_
  std::unique_ptr<fuse::Session> session_;
  std::jthread session_thread_;
  std::vector<std::jthread> forgetting_;  // they drop the kernel's state of dead mounts
  UniqueFd mount_point_;
  bool made_mount_point_ = false;
  std::unique_ptr<stage::OpenedDirectories> opened_;  // belongs to store_
  // names of results that may collide with other files; uses filesystem_
  std::unique_ptr<stage::PlacedNames> placed_;
  // for a job on several nodes, or since a stop with merge
  std::unique_ptr<stage::PfsIo> merging_;
  std::atomic<bool> keep_image_{false};              // the store stays when this process ends
  std::atomic<bool> may_have_left_partials_{false};  // a transfer failed
  // the store is no longer needed and could not be removed
  std::atomic<bool> store_stays_{false};
  std::unique_ptr<TimerThread> housekeeper_;  // destroyed before filesystem_
  stage::Progress progress_;
  stage::Throttle throttle_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();

  // rank 4: control requests that use filesystem_ hold it shared; the end of filesystem_ holds it
  // exclusively
  SharedMutex files_in_use_;
  Unloaded unloaded_{options_.directory + "/unloaded"};
  std::unique_ptr<Tasks> tasks_;  // open from listen() on; closed before the unmount

  // rank 5; under it only the backend's space() is called, and never the StopCoordinator
  Mutex mutex_;
  Condition changed_;
  // from then on start() does not change store_ and filesystem_
  bool start_has_store_ EFS_GUARDED_BY(mutex_) = false;
  control::Json start_failure_ EFS_GUARDED_BY(mutex_);
  std::optional<stage::StagedIn> staged_in_ EFS_GUARDED_BY(mutex_);
  // of the stage-in by this process
  std::vector<stage::TimedFile> slowest_inputs_ EFS_GUARDED_BY(mutex_);
  std::string lost_ EFS_GUARDED_BY(mutex_);  // text about losses of an earlier instance
  // by backend index: why the kernel refuses passthrough for the backend's files
  std::map<unsigned, std::string> refusals_ EFS_GUARDED_BY(mutex_);
  bool failure_told_ EFS_GUARDED_BY(mutex_) = false;
  // the starter disappeared before the start had ended: the instance is unwanted
  bool starter_is_gone_ EFS_GUARDED_BY(mutex_) = false;
  bool session_ended_ EFS_GUARDED_BY(mutex_) = false;
  // the kernel has sent its first request and has received the answer
  bool session_begun_ EFS_GUARDED_BY(mutex_) = false;
  // in a successor: the session accepts notifications to the kernel
  bool session_resumed_ EFS_GUARDED_BY(mutex_) = false;
  // text about the wait of the current unmount; null: no unmount waits
  const char* waits_for_ EFS_GUARDED_BY(mutex_) = nullptr;
  // a successor can continue if this worker dies, according to the kernel
  std::atomic<bool> can_be_replaced_{false};
  std::atomic<bool> ready_{false};  // store_, filesystem_ and session_ may be read
  ThreadTimers timers_;
  StopCoordinator stops_;  // calls deadline_
  Deadline deadline_;      // last: its threads use the members above
};

}  // namespace efs::daemon
