#include "daemon/instance.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/log.hpp"
#include "base/text.hpp"
#include "config/mount_options.hpp"
#include "fs/staging.hpp"
#include "stage/merge.hpp"
#include "stage/planner.hpp"
#include "stage/stage_in.hpp"
#include "stage/stage_out.hpp"

namespace efs::daemon {
namespace {

using control::Json;
// Threads are started when slow work needs them: so many slow requests, less one, run side by side.
unsigned session_threads() { return std::clamp(2 * std::thread::hardware_concurrency(), 16U, 64U); }

stage::Pace pace_of(const config::JobConfig& config) {
  return {.max_rate = config.max_rate, .max_ops = config.max_ops, .retries = config.retries};
}

}  // namespace

stage::Options stage_options(const config::JobConfig& config) { return {.workers = config.workers, .transfer_size = config.transfer_size}; }

const char* name_of(State state) {
  switch (state) {
    case State::planning: return "planning";
    case State::staging_in: return "staging-in";
    case State::running: return "running";
    case State::unmounting: return "unmounting";
    case State::staging_out: return "staging-out";
    case State::unsaved: return "unsaved";
    case State::ended: return "ended";
    case State::failed: return "failed";
  }
  return "?";
}

Instance::Instance(InstanceOptions options, SupervisorClient& supervisor, TurnClient& turns)
    : options_(std::move(options)), supervisor_(supervisor), turns_(turns), throttle_(pace_of(options_.config)) {}

// Answers under way look at members that are declared behind the server: it goes first, and waits for them.
Instance::~Instance() { server_.reset(); }

stage::PacedPfs Instance::paced_pfs(const std::atomic<bool>& cancel, stage::PfsIo& pfs) { return {pfs, pace_of(options_.config), throttle_, cancel}; }

Status Instance::listen() {
  auto server = control::Server::listen(options_.directory + "/control.sock", options_.owner, [this](const Json& request, const control::Server::Progress& progress) { return handle(request, progress); });
  if (!server) return std::unexpected(server.error());
  server_ = std::move(*server);
  return {};
}

int Instance::run() {
  const bool successor = options_.takeovers > 0;
  if (successor) {
    if (const Status taken = take_over(); !taken) {
      log::error("event=takeover_failed reason=\"{}\"", describe(taken.error()));
      return 1;  // everything stays as it is: the supervisor decides
    }
  } else if (const Status started = start(); !started) {
    log::error("event=start_failed reason=\"{}\"", describe(started.error()));
    tear_down();
    tell_failure(control::error_line(started.error()));
    close_watchers();
    close_socket();
    return 1;
  }
  while (!serve_until_stopped()) {}
  tear_down();
  close_socket();
  enter(State::ended);
  close_watchers();
  return 0;
}

void Instance::tell_failure(Json failure) {
  MutexLock lock(mutex_);
  start_failure_ = std::move(failure);
  state_ = State::failed;
  if (watchers_) watchers_->poke();
  changed_.notify_all();
  // Whoever started us is waiting for the reason; give him the time to hear it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!failure_told_ && changed_.wait_until(mutex_, end)) {}
}

Status Instance::open_watchers() {
  auto watchers = Watchers::open(options_.config, options_.directory, [this] { return status_file_now(); });
  if (!watchers) return std::unexpected(watchers.error());
  MutexLock lock(mutex_);
  watchers_ = std::move(*watchers);
  return {};
}

Status Instance::start() {
  EFS_TRY(open_watchers());
  EFS_TRY(prepare_mount_point());
  EFS_TRY(open_store(false));
  note_merge_start(false);
  EFS_TRY(plan_and_stage_in());
  return mount();
}

Status Instance::open_store(bool there) {
  auto store = set_up_store(options_.config.backends.front(), options_.config.name, options_.privileged, (options_.mount_flags & config::mount_noatime) != 0, supervisor_, there);
  if (!store) return std::unexpected(store.error());
  store_ = std::move(*store);
  struct stat root {};
  if (!there && ::stat(options_.config.root_dir.c_str(), &root) != 0) return fail_errno("root-dir " + options_.config.root_dir);
  auto filesystem = fs::Filesystem::open(*store_.backend, {.metadata_directory = store_.metadata.get(), .root_mode = root.st_mode & 07777, .uid = ::geteuid(), .gid = ::getegid(), .takeover = there,
                                                           .keeps_atime = (options_.mount_flags & (config::mount_noatime | config::mount_readonly)) != 0, .segment_size = options_.config.backends.front().segment_size});
  if (!filesystem) return std::unexpected(filesystem.error());
  filesystem_ = std::move(*filesystem);
  return {};
}

// When the job began by the PFS's clock: what is newer in results-dir at the end is another node's. Kept for successors.
void Instance::note_merge_start(bool there) {
  if (options_.config.nodes < 2 || options_.config.results_dir.empty()) return;
  const std::string kept = options_.directory + "/merge-since";
  if (there) {
    std::ifstream(kept) >> merge_since_;
  } else if (const auto now = stage::pfs_now(options_.config.results_dir)) {
    merge_since_ = *now;
    std::ofstream(kept) << merge_since_;
  }
}

Status Instance::take_over() {
  EFS_TRY(open_watchers());
  EFS_TRY(open_store(true));
  note_merge_start(true);
  auto connection = supervisor_.resume();
  if (!connection && connection.error().code != ENOTCONN) return std::unexpected(connection.error());
  log::warn("event=takeover takeovers={} predecessor=\"{}\" mounted={}", options_.takeovers, options_.predecessor, connection.has_value());
  made_mount_point_ = ::access((options_.directory + "/made-mount-dir").c_str(), F_OK) == 0;
  const bool passthrough = options_.privileged && !options_.daemon_io && store_.backend->offers_descriptor();
  session_ = std::make_unique<fuse::Session>(*filesystem_, passthrough ? &supervisor_ : nullptr, sinks());
  if (!connection) {
    {
      MutexLock lock(mutex_);
      session_ended_ = true;
    }
    enter(State::unsaved);
    return {};
  }
  session_->inherit(connection->backings);
  serve_in_thread(std::move(connection->fuse), std::move(connection->init));
  ready_ = true;
  enter(State::running);
  return {};
}

// Before anything moves: a mount point that cannot be used is found now and not after an hour of staging.
Status Instance::prepare_mount_point() {
  const std::string& path = options_.config.mount_dir;
  if (::mkdir(path.c_str(), 0755) == 0) {
    made_mount_point_ = true;
    ::close(::open((options_.directory + "/made-mount-dir").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));  // for a successor
  } else if (errno != EEXIST) return fail_errno("mount-dir " + path);
  mount_point_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!mount_point_) return fail_errno("mount-dir " + path);
  DIR* directory = ::fdopendir(::dup(mount_point_.get()));
  bool empty = true;
  while (const dirent* entry = directory == nullptr ? nullptr : ::readdir(directory))
    if (std::string_view name = entry->d_name; name != "." && name != "..") empty = false;
  if (directory != nullptr) ::closedir(directory);
  if (!empty) return fail(ENOTEMPTY, "mount-dir " + path + " is not empty: its files would be hidden by the mount; name an empty directory");
  if (const Status allowed = supervisor_.check_mount(mount_point_.get()); !allowed) return fail(allowed.error().code, "mount-dir " + path + ": " + describe(allowed.error()));
  return {};
}

Status Instance::plan_and_stage_in() {
  stage::PacedPfs pfs = paced_pfs(progress_.cancel);
  fs::Staging staging(*filesystem_);
  stage::StagingBuffer buffer(staging);
  const auto available = staging.available_bytes();
  auto plan = stage::make_plan(options_.config, pfs, available ? std::optional(*available) : std::nullopt);
  if (!plan) return std::unexpected(plan.error());
  if (!plan->problems.empty()) {
    std::string text = "the job cannot start:";
    for (const auto& problem : plan->problems) text += "\n  " + problem.path + ": " + problem.reason;
    return fail(EINVAL, text);
  }
  enter(State::staging_in);
  const auto turn = turns_.take(queue::Direction::in, plan->bytes, progress_);
  if (!turn) return std::unexpected(turn.error());
  const stage::StageReport report = stage::stage_in(*plan, buffer, pfs, stage_options(options_.config), progress_);
  if (!report.ok()) return fail(report.failure->error.code, "stage-in failed: " + (report.failure->path.empty() ? "" : options_.config.root_dir + "/" + report.failure->path + ": ") + describe(report.failure->error));
  log::info("event=staged_in files={} directories={} bytes={} seconds={:.3f} retries={}", report.files, report.directories, report.bytes, report.seconds, pfs.retried());
  return {};
}

Status Instance::mount() {
  const bool passthrough = options_.privileged && !options_.daemon_io && options_.config.trace.empty() && store_.backend->offers_descriptor();
  session_ = std::make_unique<fuse::Session>(*filesystem_, passthrough ? &supervisor_ : nullptr, sinks());
  EFS_TRY(filesystem_->new_connection());
  auto fuse = supervisor_.mount(mount_point_.get(), options_.mount_flags, options_.source);
  if (!fuse) return fail(fuse.error().code, "cannot mount at " + options_.config.mount_dir + ": " + describe(fuse.error()));
  // Ours would keep the mount point's old face busy.
  mount_point_.reset();
  serve_in_thread(std::move(*fuse), std::nullopt);
  // The first request that is answered is INIT: a mount that does not answer is not ready.
  struct statvfs probe {};
  if (::statvfs(options_.config.mount_dir.c_str(), &probe) != 0) {
    return fail_errno("the mount at " + options_.config.mount_dir + " does not answer");
  }
  ready_ = true;
  enter(State::running);
  return {};
}

void Instance::serve_in_thread(UniqueFd fuse, std::optional<fuse::InitRequest> init) {
  session_thread_ = std::jthread([this, fd = std::move(fuse), init = std::move(init)]() mutable {
    const fuse::RequestLoop::Options loop{.most_threads = session_threads(), .spin = options_.spin};
    const Status served = init ? session_->take_over(std::move(fd), loop, *init, [this] { supervisor_.report_progress(); })
                               : session_->serve(std::move(fd), loop, [this](const fuse::InitRequest& request) { supervisor_.keep_init(request); });
    if (!served) {
      log::error("event=session_failed reason=\"{}\"", describe(served.error()));
      supervisor_.abort();
    }
    MutexLock lock(mutex_);
    session_ended_ = true;
    changed_.notify_all();
  });
}

// Waits for a reason to stop and carries it out. True when the life is over.
bool Instance::serve_until_stopped() {
  StopRequest request;
  bool was_unsaved = false;
  {
    MutexLock lock(mutex_);
    was_unsaved = state_ == State::unsaved;
    // An unmount from outside (umount, fusermount3 -u) is the ancestor's way to say: done, stage out.
    while (!stop_request_ && (!session_ended_ || was_unsaved)) changed_.wait(mutex_);
    if (stop_request_) request = *stop_request_;
  }
  if (!was_unsaved) {
    enter(State::unmounting);
    tasks_.close(request.stage_out);
    if (const Status unmounted = unmount(); !unmounted) {
      tasks_.reopen();
      enter(State::running);
      finish_stop(control::error_line(unmounted.error()));
      return false;
    }
  }
  if (!request.stage_out) {
    log::info("event=stopped stage_out=no");
    {
      MutexLock lock(mutex_);
      last_receipt_.reset();
    }
    finish_stop(control::result_line({{"staged_out", false}}));
    return true;
  }
  enter(State::staging_out);
  if (stage_out()) return true;
  enter(State::unsaved);
  return false;
}

Status Instance::unmount() {
  if (const Status unmounted = supervisor_.unmount(); !unmounted) return fail(unmounted.error().code, options_.config.mount_dir + " is in use: " + describe(unmounted.error()));
  if (session_thread_.joinable()) session_thread_.join();
  return {};
}

bool Instance::stage_out() {
  const auto merging = options_.config.nodes > 1 ? stage::merging_pfs(merge_since_) : nullptr;
  stage::PacedPfs pfs = paced_pfs(progress_.cancel, merging ? *merging : stage::posix_pfs());
  fs::Staging staging(*filesystem_);
  stage::StagingBuffer buffer(staging);
  progress_.cancel = false;
  const auto turn = turns_.take(queue::Direction::out, store_.backend->space().used, progress_);
  stage::Receipt receipt = stage::stage_out(options_.config, buffer, pfs, stage_options(options_.config), progress_);
  receipt.retries = pfs.retried();
  add_unloaded(receipt);
  int code = stage::exit_code(receipt);
  Json outcome = control::result_line({{"staged_out", true}, {"summary", stage::describe(receipt)}});
  if (!options_.config.results_dir.empty()) {
    const std::string path = options_.config.results_dir + "/efs-receipt-" + options_.config.name + ".json";
    if (const Status written = stage::write_receipt(receipt, path)) {
      outcome["receipt_file"] = path;
    } else {
      outcome["summary"] = outcome["summary"].get<std::string>() + "\nThe receipt could not be written: " + path + ": " + describe(written.error());
      if (code == 0) code = 1;
    }
  }
  outcome["exit"] = code;
  log::info("event=staged_out verdict={} files={} bytes={} failed={}", stage::name_of(receipt.verdict), receipt.totals.staged_out, receipt.totals.bytes_staged_out, receipt.totals.failed + receipt.totals.conflict + receipt.totals.not_saved);
  if (code != 0) outcome["kept"] = true;
  {
    MutexLock lock(mutex_);
    last_receipt_ = std::make_shared<const stage::Receipt>(std::move(receipt));
  }
  finish_stop(std::move(outcome));
  return code == 0;
}

void Instance::tear_down() {
  if (session_thread_.joinable()) {
    supervisor_.abort();  // only after a start that failed: nothing was written yet, and nobody may hold us up
    session_thread_.join();
  }
  tasks_.close(false);
  ready_ = false;
  mount_point_.reset();
  if (made_mount_point_) ::rmdir(options_.config.mount_dir.c_str());
  {
    const WriteLock users(files_in_use_);
    MutexLock lock(mutex_);  // nobody asks for figures of what goes now
    session_.reset();
    filesystem_.reset();
    store_.backend.reset();
    store_.metadata.reset();
  }
  remove_store(store_.directory);
}

std::vector<fuse::EventSink*> Instance::sinks() {
  MutexLock lock(mutex_);
  return watchers_->sinks();
}

// The last document of the status file is written here, which asks for our state.
void Instance::close_watchers() {
  std::unique_ptr<Watchers> last;
  {
    MutexLock lock(mutex_);
    last.swap(watchers_);
  }
}

void Instance::close_socket() const { ::unlink((options_.directory + "/control.sock").c_str()); }

void Instance::enter(State state) {
  MutexLock lock(mutex_);
  state_ = state;
  changed_.notify_all();
  if (watchers_) watchers_->poke();
  log::info("event=state state={}", name_of(state));
}

void Instance::request_stop(bool stage_out) {
  MutexLock lock(mutex_);
  if (state_ == State::planning || state_ == State::staging_in) progress_.cancel = true;
  stop_request_ = StopRequest{stage_out};
  changed_.notify_all();
}

void Instance::finish_stop(Json outcome) {
  MutexLock lock(mutex_);
  last_outcome_ = std::move(outcome);
  if (watchers_) watchers_->poke();
  stop_request_.reset();
  ++stops_done_;
  changed_.notify_all();
}

}  // namespace efs::daemon
