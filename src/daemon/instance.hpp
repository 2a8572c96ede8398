#pragma once
// One job's life in the worker: plan, stage in, mount, serve, unmount, stage out. Runs as the job's
// user.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>

#include "base/mutex.hpp"
#include "base/timer_thread.hpp"
#include "config/job_config.hpp"
#include "control/server.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/slot_keeper.hpp"
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
  std::string directory;  // of the instance: the control socket goes there
  uid_t owner = 0;
  bool privileged = false;  // the supervisor is root
  bool daemon_io = false;   // no passthrough, whatever the kernel offers
  std::uint64_t mount_flags = 0;
  std::optional<std::uint32_t> root_mode;  // nullopt: as root-dir has it
  std::chrono::microseconds spin{50};      // see fuse/request_loop.hpp
  std::string source;                      // as mount(8) shows it
  pid_t supervisor = 0;
  unsigned takeovers = 0;   // workers before this one that died
  std::string predecessor;  // how the last of them ended, for the log
  // StopRequest::is_unusual() of that for which one of them had unmounted
  bool stop_is_unusual = false;
  KeptFigures* figures = nullptr;  // of all workers together; null: each has its own
};

/// What comes before `running` is on its way there, in order; `recovering`: a successor replays the
/// journal. `unsaved`: unmounted, but results are still only in the buffer; a stop tries again.
enum class State : std::uint8_t {
  planning,
  recovering,
  staging_in,
  running,
  unmounting,
  staging_out,
  unsaved,
  ended,
  failed
};
const char* name_of(State state);

// How often a verb that follows is told of the progress.
constexpr auto progress_interval = std::chrono::milliseconds(250);

// What a stop leaves that had to end in time: no daemon is there to be stopped again.
constexpr const char* way_out_of_image = "bring them out: efs salvage";

// With what is nobody's data, at the end, and lies on a file system that may hang.
constexpr auto patience_with_trifles = std::chrono::seconds(5);

class Instance {
  using Clock = std::chrono::steady_clock;

 public:
  /// `turns`: where stage-in and stage-out wait for their turn at the PFS.
  Instance(InstanceOptions options, SupervisorClient& supervisor, SlotClient& turns);
  ~Instance();

  /// Opens the control socket. After this, run().
  Status listen();
  /// The whole life; ends when the results are back (or given up). The exit code of the worker.
  int run();

  /// Asks for a stop, as `efs stop` does; for signals.
  struct StopRequest {
    bool stage_out = true;
    bool keep = false;                         // leave the store, for the next start
    bool start_only = false;                   // nothing where the start has succeeded
    std::optional<Clock::time_point> until;    // end then; what is not saved stays in the image
    std::optional<Clock::time_point> gone_by;  // somewhat later: what was asked for
    bool inherits = false;  // those of an earlier request, which this one goes on with
    bool cut_off = false;   // do not wait for mount namespaces that still have the mount
    // replace nothing that is newer than this instance: another run of the job may have made it
    bool merge = false;

    // else the results are to be brought back, whoever does it
    bool is_unusual() const { return keep || merge || !stage_out; }

    double asked_ago = 0;      // seconds: of a predecessor that died, by who asks again
    std::uint64_t ticket = 0;  // of whoever waits; 0: nobody
  };

  /// Its ticket, which finish_stop() answers.
  std::uint64_t request_stop(StopRequest request);

 private:
  /// start() or take_over(); what they throw is an error as well.
  Status begin(bool successor);
  Status start();
  /// In place of start(): the store is there, and the mount too unless it was unmounted before.
  Status take_over();
  /// What a predecessor wrote down of the end; nothing where it had not ended.
  std::optional<image::Manifest> noted_end() const;
  int finish(const image::Manifest& noted);
  void note_left(image::ShutdownState left);
  Status open_watchers();
  /// In a takeover: waits for nothing, and cannot fail.
  void open_watchers_later();
  std::vector<fuse::EventSink*> sinks();
  void open_session();
  Status go_on_without(const image::Manifest& before);
  Status open_store();
  /// Without one, or with one that cannot be used, everything is staged in from the PFS.
  void open_cache();
  stage::Options stage_options() const;
  void note_merge_start();
  void note_mount_point(bool takeover);
  Status open_placed();
  void shut_what_was_opened();
  Status book_what_is_out();
  Status open_merging();
  Status take_after_root_dir(gid_t gid);
  Status refuse_changed_contents();
  void report_recovery();
  /// Where results go: with several nodes none replaces another's.
  stage::PfsIo& results_pfs();
  SupervisorClient* passthrough_registry();
  /// Asks the kernel to register a file of each backend, once the connection is there.
  void probe_passthrough();
  Status serve_in_thread(UniqueFd fuse, std::optional<fuse::InitRequest> init);
  void note_resumed();
  void note_begun();
  void catch_up_with_predecessor();
  Status serve(UniqueFd fuse, const std::optional<fuse::InitRequest>& init);
  void put_manifest_right();
  Status drop_mount(const std::string& path);
  Status drop_former_mount(const image::Manifest& before);
  Status prepare_mount_point();
  Status claim_mount_point();
  Status open_filesystem(bool takeover);
  Status plan_and_stage_in();
  Status keep_listed(std::map<std::string, std::string> listed);
  void inherit_listed();
  void keep_staged_in(const stage::StagedIn& staged_in);
  void inherit_staged_in();
  /// Bytes that the cache can give up for this job: where both have all of one file system.
  std::uint64_t spare_in_cache();
  Result<std::uint64_t> subtract_what_is_there(stage::Plan& plan, fs::Staging& staging);
  Status mount();
  Status wait_for_kernel();
  bool serve_until_stopped();
  bool stop(StopRequest& request, bool was_unsaved);
  bool give_stop_up(const StopRequest& request, const char* reason);
  Status unmount(const StopRequest& request);
  Status unmount_for(StopRequest& request);
  /// unmount_for(), and drain() where it is to end in time and cannot; `drained`: of that, for who
  /// asked. No task is left on success.
  Status unmount_or_drain(StopRequest& request, std::string& drained);
  /// Programs are in the mount: who asked hears so, and all goes on.
  void refuse_stop(const StopRequest& request, const Error& why, std::string drained);
  void drop_inherited_deadline();
  void await_session_end();
  Status merge_from_now_on();
  /// The PFS as the job file wants it treated, by all transfers of the instance together.
  stage::PacedPfs paced_pfs(const std::atomic<bool>& cancel,
                            stage::PfsIo& pfs = stage::posix_pfs());
  /// True when the life is over: all is back, or time is up.
  bool stage_out(const StopRequest& request);
  static void set_deadline(StopRequest& request, double seconds);
  void set_usual_deadline(StopRequest& request) EFS_REQUIRES(mutex_);
  void begin_deadline(StopRequest& request);
  void drop_last_resort();
  bool is_asked_within(Clock::duration time);
  static SlotLimits turn_limits(const StopRequest& request);
  Status disown_removed(fs::Staging& staging);
  void forgive_what_is_the_jobs(stage::Plan& plan, fs::Staging& staging) const;
  Status refuse_foreign(const stage::Plan& plan, fs::Staging& staging);
  /// The first thing that could not be made durable or written; the rest is done all the same.
  /// From `end` on nothing is noted of the contents, which takes a look at each file.
  Status leave_image(image::ShutdownState left, std::optional<Clock::time_point> end = {});
  Status give_store_up();
  std::string note_contents(std::optional<Clock::time_point> end);
  void give_back_what_was_kept(bool in_a_hurry = false);
  void keep_house();
  void tear_down();
  void close_socket() const;
  /// Ends the process with `code` where that takes too long.
  void close_watchers(int code);
  void remove_mount_point();
  control::Json handle(const control::Json& request, const control::Server::Progress& progress);
  control::Json handle_wait(bool starter, const control::Server::Progress& progress);
  control::Json handle_stop(const control::Json& request,
                            const control::Server::Progress& progress);
  control::Json handle_wait_end(const control::Json& request,
                                const control::Server::Progress& progress);
  bool has_ended_within(Clock::duration time);
  control::Json outcome_for(const StopRequest& wanted, bool with_receipt);
  bool is_starting();
  void give_up_start();
  bool is_stopping(std::uint64_t ticket);
  void await_recovery();
  // instance_files.cpp: what is done to files while programs run
  control::Json handle_files(const std::string& verb, const control::Json& request,
                             const control::Server::Progress& progress);
  control::Json handle_load(const control::Json& request);
  control::Json handle_unload(const control::Json& request);
  control::Json handle_ls(const control::Json& request, const control::Server::Progress& progress);
  control::Json handle_explain(const control::Json& request);
  control::Json handle_set(const control::Json& request);
  control::Json handle_wait_task(const control::Json& request,
                                 const control::Server::Progress& progress);
  control::Json handle_cancel(const control::Json& request);
  Result<std::vector<std::string>> names_in(const control::Json& request) const;
  control::Json unload_now(const stage::UnloadRequest& what, stage::Progress& progress,
                           const SlotLimits& limits);
  std::function<Status(std::uint64_t)> turn_for(queue::Direction direction,
                                                const stage::Progress& progress,
                                                std::optional<SlotClient::Held>& turn,
                                                SlotLimits limits);
  /// Adds to a task that runs what it waits for at the PFS.
  void tell_turn(control::Json& task) const;
  control::Json status_now();
  /// Adds the files that a stage-out would export now, and their bytes. Nothing where a walk over
  /// the names takes too long, as programs wait meanwhile.
  void add_changed(control::Json& status);
  control::Json progress_now();
  control::Json status_file_now();
  void enter(State state);
  /// Staging-out, and the last of the requests until then; later ones find it staging out, and
  /// hurry it.
  Status was_done_as(const StopRequest& wanted) const EFS_REQUIRES(mutex_);
  StopRequest begin_to_end(const StopRequest& request);
  void finish_stop(const StopRequest& request, control::Json outcome);
  bool is_to_be_kept(const StopRequest& request);
  bool is_hurried();
  bool is_overruled() const EFS_REQUIRES(mutex_);
  std::string told_overruled();
  void add_brought_before(stage::Receipt& receipt);
  /// Writes the receipt, and says in `outcome` where it is and what is in it. False: not where it
  /// belongs.
  bool leave_receipt(const stage::Receipt& receipt, control::Json& outcome);
  std::unique_ptr<TimerThread> cancel_at(Clock::time_point end);
  // instance_drain.cpp: programs stay in the mount, and the stop has to end in time
  bool may_drain(const StopRequest& request, const Error& why_not_unmounted) const;
  /// What became of it, as of an unload; nothing where the PFS has not answered in time, and it
  /// goes on.
  std::optional<control::Json> drain(const StopRequest& request);
  StopRequest last_request(const StopRequest& request);
  bool end_tasks(const StopRequest& request);
  void renew_last_resort(const StopRequest& request);
  bool has_drained(std::uint64_t task, const StopRequest& request,
                   std::optional<Clock::time_point> StopRequest::* end);
  void say_what_for(const char* waits_for);
  // deadline_exit.cpp: the PFS does not answer, and time is over
  std::unique_ptr<TimerThread> leave_at(const StopRequest& request);
  void leave_without_pfs() noexcept;
  control::Json leave_what_is_left();
  control::Json drop_what_is_left(const StopRequest& request);
  bool must_leave();
  /// As leave_at(), of a start that is wanted no more: there are no results that could be waited
  /// for.
  std::unique_ptr<TimerThread> give_up_at(const StopRequest& request);
  void give_up_without_pfs() noexcept;
  bool must_give_up();
  void end_start();
  /// From here on the end asks the PFS for nothing more. Does not return where leave_without_pfs()
  /// has begun.
  void claim_end();
  std::string why_late() const;
  stage::Receipt receipt_of_what_is_left();
  void fail_with(control::Json failure);
  void tell_failure(control::Json failure);

  InstanceOptions options_;  // merge_since is found out at the start
  SupervisorClient& supervisor_;
  SlotClient& turns_;
  std::unique_ptr<control::Server> server_;
  Store store_;
  std::unique_ptr<stage::Cache> cache_;
  std::unique_ptr<stage::InputSharer> sharer_;  // outlives filesystem_, which tells it of changes
  std::unique_ptr<fs::Filesystem> filesystem_;
  // set and reset under mutex_; before session_, which tells it of requests
  std::unique_ptr<Watchers> watchers_;
  std::unique_ptr<fuse::Session> session_;
  std::jthread session_thread_;
  std::vector<std::jthread> forgetting_;  // dead mounts that were dropped
  UniqueFd mount_point_;
  bool made_mount_point_ = false;
  std::unique_ptr<stage::OpenedDirectories> opened_;  // of store_
  std::unique_ptr<stage::PlacedNames> placed_;  // where results may meet others' files; of store_
  // of a job on several nodes, or from a stop that merges on
  std::unique_ptr<stage::PfsIo> merging_;
  std::atomic<bool> keep_image_{false};              // the store stays when this process ends
  std::atomic<bool> may_have_left_partials_{false};  // a transfer that failed
  // nothing in it is needed, and it could not be removed
  std::atomic<bool> store_stays_{false};
  std::unique_ptr<TimerThread> housekeeper_;  // goes before filesystem_
  stage::Progress progress_;
  stage::Throttle throttle_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();

  // rank 4: shared by control requests that use filesystem_; exclusive to end it
  SharedMutex files_in_use_;
  Unloaded unloaded_{options_.directory + "/unloaded"};
  std::unique_ptr<Tasks> tasks_;  // from listen() on; closed before the mount goes

  Mutex mutex_;  // rank 5; nothing but the backend's space() is called under it
  Condition changed_;
  State state_ EFS_GUARDED_BY(mutex_);
  std::optional<StopRequest> stop_request_ EFS_GUARDED_BY(mutex_);
  // tickets: the last given, the last answered
  std::uint64_t stops_asked_ EFS_GUARDED_BY(mutex_) = 0, stops_done_ EFS_GUARDED_BY(mutex_) = 0;
  // a later stop's deadline, while an earlier one stages out
  std::unique_ptr<TimerThread> hurry_ EFS_GUARDED_BY(mutex_);
  // takes mutex_: is let go of without it
  std::unique_ptr<TimerThread> last_resort_ EFS_GUARDED_BY(mutex_);
  bool end_claimed_ EFS_GUARDED_BY(mutex_) = false;  // by the stop that runs: claim_end()
  // by leave_without_pfs(), or give_up_without_pfs()
  bool leaving_ EFS_GUARDED_BY(mutex_) = false;
  // as last_resort_, until a start has ended
  std::unique_ptr<TimerThread> start_resort_ EFS_GUARDED_BY(mutex_);
  // from then on a start leaves store_ and filesystem_ as they are
  bool start_has_store_ EFS_GUARDED_BY(mutex_) = false;
  StopRequest last_stop_ EFS_GUARDED_BY(mutex_);  // the one of that outcome
  control::Json last_outcome_ EFS_GUARDED_BY(mutex_);
  control::Json start_failure_ EFS_GUARDED_BY(mutex_);
  std::optional<stage::StagedIn> staged_in_ EFS_GUARDED_BY(mutex_);
  std::string lost_ EFS_GUARDED_BY(mutex_);  // of an earlier instance, in words
  // by place: why the kernel gives its files no passthrough
  std::map<unsigned, std::string> refusals_ EFS_GUARDED_BY(mutex_);
  bool failure_told_ EFS_GUARDED_BY(mutex_) = false;
  // before the start had ended: the instance is not wanted
  bool starter_is_gone_ EFS_GUARDED_BY(mutex_) = false;
  bool session_ended_ EFS_GUARDED_BY(mutex_) = false;
  // the kernel has come with its first request, and has its answer
  bool session_begun_ EFS_GUARDED_BY(mutex_) = false;
  // of a successor: the kernel can be told of changes
  bool session_resumed_ EFS_GUARDED_BY(mutex_) = false;
  // of a successor of one that staged out
  std::optional<Clock::time_point> goes_on_alone_at_ EFS_GUARDED_BY(mutex_);
  // of an unmount under way, in words; null: nobody
  const char* waits_for_ EFS_GUARDED_BY(mutex_) = nullptr;
  // of the last stage-out; as JSON only for those who ask
  std::shared_ptr<const stage::Receipt> last_receipt_ EFS_GUARDED_BY(mutex_);
  // by another worker, if this one dies: the kernel says so
  std::atomic<bool> can_be_replaced_{false};
  std::atomic<bool> ready_{false};  // store_, filesystem_ and session_ may be looked at
};

}  // namespace efs::daemon
