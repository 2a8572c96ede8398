#include "daemon/instance.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "config/mount_options.hpp"
#include "fs/staging.hpp"
#include "image/image.hpp"
#include "stage/merge.hpp"
#include "stage/planner.hpp"
#include "stage/resume.hpp"
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
      fail_with(control::error_line(taken.error()));
      close_watchers();
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

void Instance::fail_with(Json failure) {
  MutexLock lock(mutex_);
  start_failure_ = std::move(failure);
  state_ = State::failed;
  if (watchers_) watchers_->poke();
  changed_.notify_all();
}

void Instance::tell_failure(Json failure) {
  fail_with(std::move(failure));
  MutexLock lock(mutex_);
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
  // What an earlier instance left is not ours to drop if this start fails.
  const UniqueFd directory(::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const auto before = directory ? image::read_manifest(directory.get()) : Result<image::Manifest>(fail(ENOENT));
  keep_image_ = before.has_value() || before.error().code != ENOENT;
  supervisor_.keep_store(keep_image_);
  EFS_TRY(open_watchers());
  EFS_TRY(prepare_mount_point());
  EFS_TRY(open_store());
  if (before && before->store != store_.path && image::find_store(before->store)) {
    const std::string where = store_.path;
    if (!store_.left) remove_store(std::exchange(store_.directory, ""));
    return fail(EEXIST, "an earlier instance of this name left its data in " + before->store + ", and this job's store is " + where + "; bring the data out (efs salvage " + options_.config.name + ") and remove them (efs clean), or choose another --name");
  }
  keep_image_ = store_.left;
  supervisor_.keep_store(keep_image_);
  EFS_TRY(open_filesystem(false));
  EFS_TRY(plan_and_stage_in());
  return mount();
}

Status Instance::open_store() {
  auto store = set_up_store(options_.config, options_.directory, options_.privileged, (options_.mount_flags & config::mount_noatime) != 0, supervisor_);
  if (!store) return std::unexpected(store.error());
  store_ = std::move(*store);
  return {};
}

// When the job began, by the PFS's clock: what is newer in results-dir at the end is another node's. The manifest keeps
// it for whoever goes on with the store.
void Instance::note_merge_start() {
  config::JobConfig& config = options_.config;
  if (config.nodes < 2 || config.results_dir.empty()) return;
  if (store_.left) config.merge_since = store_.manifest.merge_since;
  else if (const auto now = stage::pfs_now(config.results_dir)) config.merge_since = *now;
  merging_ = stage::merging_pfs(config.merge_since);
}

stage::PfsIo& Instance::results_pfs() { return merging_ ? *merging_ : stage::posix_pfs(); }

// Opens stay on one path for the life of the mount, also under a successor.
SupervisorClient* Instance::passthrough_registry() {
  const bool passthrough = options_.privileged && !options_.daemon_io && options_.config.trace.empty() && store_.backend->offers_descriptor();
  return passthrough ? &supervisor_ : nullptr;
}

Status Instance::take_over() {
  EFS_TRY(open_watchers());
  keep_image_ = true;  // until a stop says otherwise
  EFS_TRY(open_store());
  if (!store_.left) return fail(ENOENT, "the predecessor's store " + store_.path + " is gone");
  EFS_TRY(open_filesystem(true));
  auto connection = supervisor_.resume();
  if (!connection && connection.error().code != ENOTCONN) return std::unexpected(connection.error());
  log::warn("event=takeover takeovers={} predecessor=\"{}\" mounted={}", options_.takeovers, options_.predecessor, connection.has_value());
  session_ = std::make_unique<fuse::Session>(*filesystem_, passthrough_registry(), sinks());
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
  keep_house();
  ready_ = true;
  enter(State::running);
  return {};
}

// A start on what an earlier instance left and a takeover replay the same journal; what the kernel has lives on in a
// takeover only.
Status Instance::open_filesystem(bool takeover) {
  struct stat root {};
  if (!store_.left && ::stat(options_.config.root_dir.c_str(), &root) != 0) return fail_errno("root-dir " + options_.config.root_dir);
  made_mount_point_ = made_mount_point_ || (store_.left && store_.manifest.made_mount_dir);
  note_merge_start();
  if (!store_.left) EFS_TRY(write_manifests(store_, options_.config, options_.directory, image::Left::in_use, made_mount_point_));
  const bool same_boot = !store_.left || store_.manifest.boot_id == image::boot_id();
  auto filesystem = fs::Filesystem::open(*store_.backend, {.metadata_directory = store_.metadata.get(), .root_mode = root.st_mode & 07777, .uid = ::geteuid(), .gid = ::getegid(),
                                                           .after_power_loss = !same_boot, .takeover = takeover,
                                                           .keeps_atime = (options_.mount_flags & (config::mount_noatime | config::mount_readonly)) != 0, .segment_size = options_.config.backends.front().segment_size});
  if (!filesystem) return fail(filesystem.error().code, store_.path + ": " + describe(filesystem.error()) + (store_.left ? "; look at it with efs check-image" : ""));
  filesystem_ = std::move(*filesystem);
  if (!store_.left) return {};
  const auto& met = filesystem_->recovery();
  log::info("event=recovered records={} torn={} nameless={} unknown_containers={} emptied={} dropped={}", met.journal.records, met.journal.torn, met.nameless, met.unknown_containers, met.emptied.size(), met.dropped.size());
  for (const auto& path : met.emptied) log::warn("event=content_lost path=\"{}\" reason=\"power loss before its first fsync\"", path);
  if (takeover) return {};
  log::info("event=resumed store={} left={} same_boot={}", store_.path, image::name_of(store_.manifest.left), same_boot);
  // Only now: a manifest of this boot says that what power loss made doubtful has been dropped.
  return write_manifests(store_, options_.config, options_.directory, image::Left::in_use, made_mount_point_);
}

// Before anything moves: a mount point that cannot be used is found now and not after an hour of staging.
Status Instance::prepare_mount_point() {
  const std::string& path = options_.config.mount_dir;
  struct statfs fs {};
  if (::statfs(path.c_str(), &fs) != 0 && errno == ENOTCONN) {
    const auto slash = path.rfind('/');
    const UniqueFd parent(::open(slash == 0 ? "/" : path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!parent) return fail_errno("mount-dir " + path);
    if (const Status dropped = supervisor_.drop_dead_mount(parent.get(), path.substr(slash + 1)); !dropped) return fail(dropped.error().code, "mount-dir " + path + " has a dead mount: " + describe(dropped.error()));
  }
  if (::mkdir(path.c_str(), 0755) == 0) made_mount_point_ = true;
  else if (errno != EEXIST) return fail_errno("mount-dir " + path);
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
  auto plan = stage::make_plan(options_.config, pfs, available && !store_.left ? std::optional(*available) : std::nullopt);
  if (!plan) return std::unexpected(plan.error());
  if (!plan->problems.empty()) {
    std::string text = "the job cannot start:";
    for (const auto& problem : plan->problems) text += "\n  " + problem.path + ": " + problem.reason;
    return fail(EINVAL, text);
  }
  if (store_.left) EFS_TRY(subtract_what_is_there(*plan, staging));
  enter(State::staging_in);
  const auto turn = turns_.take(queue::Direction::in, plan->bytes, progress_);
  if (!turn) return std::unexpected(turn.error());
  const stage::StageReport report = stage::stage_in(*plan, buffer, pfs, stage_options(options_.config), progress_);
  if (!report.ok()) return fail(report.failure->error.code, "stage-in failed: " + (report.failure->path.empty() ? "" : options_.config.root_dir + "/" + report.failure->path + ": ") + describe(report.failure->error));
  log::info("event=staged_in files={} directories={} bytes={} seconds={:.3f} retries={}", report.files, report.directories, report.bytes, report.seconds, pfs.retried());
  return {};
}

// An earlier instance has staged in, and perhaps worked on, some of it.
Status Instance::subtract_what_is_there(stage::Plan& plan, fs::Staging& staging) {
  const auto items = staging.walk();
  if (!items) return std::unexpected(items.error());
  const auto subtracted = stage::subtract(plan, *items);
  for (const auto& path : subtracted.outdated) EFS_TRY(staging.remove(path));
  if (const auto available = staging.available_bytes(); available && plan.needed > *available)
    return fail(ENOSPC, "what is missing of the inputs needs " + format_bytes(plan.needed) + " and the buffer, which holds what an earlier instance left, can take " + format_bytes(*available));
  log::info("event=resume_plan missing_files={} missing_bytes={} kept_files={} kept_bytes={} changed_by_job={} outdated={}", plan.files, plan.bytes, subtracted.kept_files, subtracted.kept_bytes, subtracted.job_files,
            subtracted.outdated.size());
  return {};
}

// On a store that outlives the machine: group commit, and booking what has reached the medium.
void Instance::keep_house() {
  if (store_.backend->durability() == Durability::volatile_memory) return;
  constexpr auto interval = std::chrono::seconds(1);
  housekeeper_ = std::make_unique<TimerThread>(std::chrono::steady_clock::now() + interval, [this] { filesystem_->tend(); }, interval);
}

Status Instance::mount() {
  session_ = std::make_unique<fuse::Session>(*filesystem_, passthrough_registry(), sinks());
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
  keep_house();
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
    tasks_.close(request.stage_out && !request.until);  // what unloads have not brought out, the stage-out does, in time
    if (const Status unmounted = unmount(); !unmounted) {
      tasks_.reopen();
      enter(State::running);
      finish_stop(request, control::error_line(unmounted.error()));
      return false;
    }
  }
  if (!request.stage_out) {
    {
      MutexLock lock(mutex_);
      last_receipt_.reset();
    }
    keep_image_ = request.keep;
    if (keep_image_) leave_image(image::Left::unsaved);
    log::info("event=stopped stage_out=no store={}", keep_image_ ? "kept" : "dropped");
    finish_stop(request, control::result_line({{"staged_out", false}}));
    return true;
  }
  enter(State::staging_out);
  if (stage_out(request)) return true;
  enter(State::unsaved);
  return false;
}

Status Instance::unmount() {
  if (const Status unmounted = supervisor_.unmount(); !unmounted) return fail(unmounted.error().code, options_.config.mount_dir + " is in use: " + describe(unmounted.error()));
  if (session_thread_.joinable()) session_thread_.join();
  housekeeper_.reset();
  return {};
}

void Instance::leave_image(image::Left left) {
  if (const Status done = filesystem_->settle(); !done) log::warn("event=not_settled reason=\"{}\"", describe(done.error()));
  if (const Status done = filesystem_->fsync_metadata(); !done) log::error("event=journal_not_synced reason=\"{}\"", describe(done.error()));
  if (const Status done = write_manifests(store_, options_.config, options_.directory, left, false); !done) log::error("event=manifest_not_written reason=\"{}\"", describe(done.error()));
}

// What is back is clean from now on, so that the next stop leaves it alone. Where results are in place, the PFS file is
// also what the buffer's was staged in from. Where that has changed again already, the doubt stays.
void Instance::book_saved(const stage::Receipt& receipt) {
  fs::Staging staging(*filesystem_);
  const auto& config = options_.config;
  const bool in_place = config.in_place || config.results_dir == config.root_dir;
  const auto items = staging.walk();
  if (!items) return log::warn("event=not_booked path=\"\" reason=\"{}\"", describe(items.error()));
  std::unordered_map<std::string_view, const fs::WalkItem*> in_buffer;
  for (const auto& item : *items) in_buffer.emplace(item.path, &item);
  for (const auto& entry : receipt.entries) {
    const bool is_back = entry.action == stage::Action::staged_out || entry.action == stage::Action::kept;
    if (!is_back || !entry.placed_as.empty()) continue;
    const auto ours = in_buffer.find(entry.path);
    struct stat st {};
    if (ours == in_buffer.end() || ::lstat((config.results_dir + "/" + entry.path).c_str(), &st) != 0) continue;
    const struct stat& in = ours->second->attributes;
    if (S_ISREG(st.st_mode) && (st.st_size != in.st_size || to_ns(st.st_mtim) != to_ns(in.st_mtim))) continue;
    const fs::Origin copy{.device = st.st_dev, .inode = st.st_ino, .size = static_cast<std::uint64_t>(st.st_size), .mtime = to_ns(st.st_mtim), .ctime = to_ns(st.st_ctim)};
    if (const Status booked = staging.mark_saved(entry.path, copy, in_place); !booked) log::warn("event=not_booked path=\"{}\" reason=\"{}\"", entry.path, describe(booked.error()));
  }
}

// With a deadline the first quarter of the time may go into waiting for a turn.
std::optional<std::chrono::steady_clock::time_point> Instance::latest_turn(const StopRequest& request) {
  if (!request.until) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  return now + (*request.until - now) / 4;
}

bool Instance::stage_out(const StopRequest& request) {
  stage::PacedPfs pfs = paced_pfs(progress_.cancel, results_pfs());
  fs::Staging staging(*filesystem_);
  stage::StagingBuffer buffer(staging);
  {
    MutexLock lock(mutex_);
    progress_.cancel = request.until && *request.until <= std::chrono::steady_clock::now();
  }
  stage::Options how = stage_options(options_.config);
  how.by_rank = request.until.has_value();
  std::unique_ptr<TimerThread> alarm;
  if (request.until) alarm = std::make_unique<TimerThread>(*request.until, [this] { progress_.cancel = true; });
  const auto turn = turns_.take(queue::Direction::out, store_.backend->space().used, progress_, latest_turn(request));
  stage::Receipt receipt = stage::stage_out(options_.config, buffer, pfs, how, progress_);
  receipt.retries = pfs.retried();
  alarm.reset();
  if (request.keep || request.until || is_hurried()) book_saved(receipt);
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
  {
    MutexLock lock(mutex_);
    last_receipt_ = std::make_shared<const stage::Receipt>(std::move(receipt));
  }
  const bool over = code == 0 || request.until;
  keep_image_ = request.keep || code != 0;
  if (over && keep_image_) leave_image(code == 0 ? image::Left::kept : image::Left::unsaved);
  if (!over) outcome["kept"] = true;
  else if (code != 0) outcome["image"] = store_.path;
  finish_stop(request, std::move(outcome));
  return over;
}

void Instance::tear_down() {
  if (session_thread_.joinable()) {
    supervisor_.abort();  // only after a start that failed: nothing was written yet, and nobody may hold us up
    session_thread_.join();
  }
  tasks_.close(false);
  ready_ = false;
  housekeeper_.reset();
  mount_point_.reset();
  if (made_mount_point_) ::rmdir(options_.config.mount_dir.c_str());
  {
    const WriteLock users(files_in_use_);
    MutexLock lock(mutex_);  // nobody asks for figures of what goes now
    session_.reset();
    filesystem_.reset();
    store_.backend.reset();
    store_.metadata.reset();
    store_.lock.reset();
  }
  supervisor_.keep_store(keep_image_);
  if (!keep_image_) remove_store(store_.directory);
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

bool Instance::is_hurried() {
  MutexLock lock(mutex_);
  return hurry_ != nullptr;
}

std::uint64_t Instance::request_stop(StopRequest request) {
  MutexLock lock(mutex_);
  if (state_ == State::planning || state_ == State::staging_in) progress_.cancel = true;
  // A stage-out under way, which may have all the time in the world, ends in time for this one, which then goes on.
  if (state_ == State::staging_out && request.until) hurry_ = std::make_unique<TimerThread>(*request.until, [this] { progress_.cancel = true; });
  request.ticket = ++stops_asked_;
  stop_request_ = request;
  changed_.notify_all();
  return request.ticket;
}

// Of several requests the last one is carried out, and answers those before it.
void Instance::finish_stop(const StopRequest& request, Json outcome) {
  MutexLock lock(mutex_);
  last_outcome_ = std::move(outcome);
  if (watchers_) watchers_->poke();
  if (stop_request_ && stop_request_->ticket == request.ticket) stop_request_.reset();
  stops_done_ = std::max(stops_done_, request.ticket);
  hurry_.reset();
  changed_.notify_all();
}

}  // namespace efs::daemon
