// SPDX-License-Identifier: BSD-3-Clause
// The mount point of a job, and the session that serves the mount.
#include "daemon/mount_service.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/boot.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/mounts.hpp"
#include "base/thread.hpp"
#include "base/with_timeout.hpp"
#include "control/instances.hpp"
#include "daemon/watchers.hpp"
#include "fs/staging.hpp"

namespace efs::daemon {

using control::Json;

namespace {

// Does the open directory have any entries?
Result<bool> holds_anything(int directory) {
  std::error_code problem;
  const bool is_empty =
      std::filesystem::is_empty("/proc/self/fd/" + std::to_string(directory), problem);
  return problem ? Result<bool>(fail(problem.value())) : !is_empty;
}

// True for file systems that are, or may be, stacked on others. The kernel does not report the
// depth of a stack.
bool may_be_stacked(int directory) {
  struct statfs fs{};
  if (::fstatfs(directory, &fs) != 0) {
    return false;
  }
  const auto type = static_cast<unsigned long>(fs.f_type);
  return type == OVERLAYFS_SUPER_MAGIC || type == ECRYPTFS_SUPER_MAGIC || type == FUSE_SUPER_MAGIC;
}

// True for temporary errors, which do not show that an operation is impossible.
bool passes(int code) {
  return code == ENOMEM || code == EMFILE || code == ENFILE || code == EINTR || code == EPIPE;
}

std::string reason_of_refusal(const Error& error) {
  if (error.code == EPERM) {
    return "the kernel does not permit it: efsd needs CAP_SYS_ADMIN in the initial user namespace";
  }
  if (error.code == ELOOP) {
    return "the kernel does not permit it: too many file systems are stacked below the store";
  }
  return "the kernel refuses it: " + describe(error);
}

// Threads start when slow requests need them. One less than this number of slow requests can run in
// parallel.
unsigned session_threads() {
  return std::clamp(2 * std::thread::hardware_concurrency(), 16U, 64U);
}

// The time for files that hold no user data and may be on a hanging file system.
constexpr auto patience_with_trifles = std::chrono::seconds(5);

}  // namespace

MountService::MountService(const config::JobConfig& config, MountOptions options,
                           MountPrivileges& privileges, StopCoordinator& stops)
    : config_(config),
      options_(std::move(options)),
      privileges_(privileges),
      stops_(stops),
      limits_(config, options_.figures != nullptr ? &options_.figures->limits : nullptr,
              options_.successor) {}

MountService::~MountService() = default;

// Does nothing if there is no dead mount.
Status MountService::drop_dead(const std::string& path) {
  struct statfs fs{};
  constexpr int patience = 5;  // seconds
  // ECONNABORTED: the daemon's last thread died during this call. A mount without an answer may
  // have outlived its daemon.
  if (answers(path, patience) &&
      (::statfs(path.c_str(), &fs) == 0 || (errno != ENOTCONN && errno != ECONNABORTED))) {
    return {};
  }
  const auto slash = path.rfind('/');
  const UniqueFd parent(
      ::open(slash == 0 ? "/" : path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent) {
    return fail_errno("mount-dir " + path);
  }
  // The last close of a dead mount waits while the kernel frees its inodes: seconds for a million
  // files. Another thread does it, so that the start does not wait.
  UniqueFd last(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const Status dropped = privileges_.drop_dead_mount(parent.get(), path.substr(slash + 1));
  if (!dropped) {
    return fail(dropped.error().code, "mount-dir " + path + " has a mount without a daemon: " +
                                          describe(dropped.error()));
  }
  if (auto thread = start_thread([fd = std::move(last)]() mutable { fd.reset(); })) {
    forgetting_.push_back(std::move(*thread));
  }
  return {};
}

Status MountService::drop_former(const image::Manifest& before) {
  if (before.mount_dir.empty() || before.mount_dir == config_.mount_dir) {
    return {};
  }
  EFS_TRY(drop_dead(before.mount_dir));
  if (before.made_mount_dir) {
    ::rmdir(before.mount_dir.c_str());
  }
  return {};
}

Status MountService::prepare_point() {
  const std::string& path = config_.mount_dir;
  EFS_TRY(drop_dead(path));
  if (::mkdir(path.c_str(), 0755) == 0) {
    made_point_ = true;
  } else if (errno != EEXIST) {
    return fail_errno("mount-dir " + path);
  }
  point_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!point_) {
    return fail_errno("mount-dir " + path);
  }
  EFS_TRY(claim_point());
  if (const Status allowed = privileges_.check_mount(point_.get()); !allowed) {
    return fail(allowed.error().code, "mount-dir " + path + ": " + describe(allowed.error()));
  }
  const auto is_there = holds_anything(point_.get());
  if (!is_there) {
    return fail(is_there.error().code, "mount-dir " + path + ": " + describe(is_there.error()));
  }
  if (*is_there) {
    return fail(
        ENOTEMPTY,
        "mount-dir " + path +
            " is not empty: its files would be hidden by the mount; name an empty directory");
  }
  return {};
}

// Locks the mount point until the mount, which may come hours later. Any user with read access to
// the directory can lock it, so a foreign lock alone is not an error.
Status MountService::claim_point() {
  const std::string& path = config_.mount_dir;
  if (::flock(point_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
    return {};
  }
  for (const auto& other : control::list_instances()) {
    const UniqueFd directory(
        ::open(other.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    const auto manifest = other.alive && directory ? image::read_manifest(directory.get())
                                                   : Result<image::Manifest>(fail(ENOENT));
    if (manifest && other.name != config_.name && manifest->mount_dir == path) {
      return fail(EBUSY, "mount-dir " + path + ": " + other.name +
                             " is about to be mounted there; name another directory");
    }
  }
  log::warn(
      "event=mount_point_locked mount={} note=\"by a program that is no instance of this user\" "
      "action=\"goes on\"",
      path);
  return {};
}

void MountService::remove_point() {
  if (!made_point_) {
    return;
  }
  const auto remove = [path = config_.mount_dir] {
    ::rmdir(path.c_str());
  };
  if (!with_timeout(patience_with_trifles, remove)) {
    log::warn("event=mount_point_stays directory={} reason=\"its file system does not answer\"",
              config_.mount_dir);
  }
}

// Opens use the same I/O path for the whole life of the mount, also under a successor.
fuse::BackingRegistrar* MountService::passthrough_registry() {
  const bool passthrough = options_.privileged && !options_.daemon_io && !options_.writeback &&
                           config_.trace.empty() && !limits_.any() &&
                           buffer_->open.backend.offers_descriptor();
  return passthrough ? &privileges_ : nullptr;
}

fuse::DueWork* MountService::space_samples(Backend& backend) {
  if (options_.figures != nullptr && config_.report) {
    space_samples_ = std::make_unique<fuse::DueWork>(
        [&backend, &series = options_.figures->history.space]() -> Clock::duration {
          return series.add({.time = wall_clock(), .used = backend.space().used});
        });
  }
  return space_samples_.get();
}

void MountService::open_session(MountedBuffer buffer) {
  buffer_.emplace(std::move(buffer));
  const bool traced = !config_.trace.empty();
  const bool stacked = std::ranges::any_of(
      buffer_->places, [](const StorePlace& one) { return may_be_stacked(one.root); });
  KeptFigures* const kept = options_.figures;
  auto session = std::make_unique<fuse::Session>(
      buffer_->open.files, passthrough_registry(),
      fuse::Session::Options{.sinks = buffer_->sinks,
                             .uncached = traced || limits_.any(),
                             .writeback = options_.writeback,
                             .stacked = stacked,
                             .xattr = config_.xattr,
                             .counters = kept != nullptr ? &kept->counters : nullptr,
                             .usage = kept != nullptr ? &kept->usage : nullptr,
                             .due_work = space_samples(buffer_->open.backend),
                             .limits = limits_.of_session(),
                             .put_aside = buffer_->put_aside,
                             .door = options_.door,
                             .door_totals = kept != nullptr ? &kept->door : nullptr});
  MutexLock lock(mutex_);
  session_ = std::move(session);
}

void MountService::close_session() {
  MutexLock lock(mutex_);
  is_published_ = false;
  session_.reset();
}

void MountService::abort() {
  if (thread_.joinable()) {
    privileges_.abort();
    thread_.join();
  }
}

// Neither root's rights nor the answer to INIT guarantee passthrough, so try it. The lock files of
// the stores belong to the user and are on the file systems of the containers.
void MountService::probe_passthrough() {
  if (!session_->passthrough()) {
    return;
  }
  std::map<unsigned, std::string> refusals;
  for (unsigned place = 0; const StorePlace& one : buffer_->places) {
    const unsigned its = place++;
    if (!one.backend.offers_descriptor()) {
      refusals[its] = "the daemon counts the capacity";
      continue;
    }
    const fuse::Registration file{.ino = 0, .fd = one.lock};
    const auto id = privileges_.open_backing(std::span(&file, 1)).front();
    if (id) {
      privileges_.close_backing(std::span(&*id, 1));
    } else if (!passes(id.error().code)) {
      refusals[its] = reason_of_refusal(id.error());
      log::warn("event=no_passthrough backend={} reason=\"{}\" action=\"the daemon does the I/O\"",
                one.id, refusals[its]);
    }
  }
  if (refusals.size() == buffer_->places.size()) {
    session_->refuse_passthrough();
  }
  MutexLock lock(mutex_);
  refusals_ = std::move(refusals);
}

Status MountService::mount() {
  EFS_TRY(buffer_->open.files.new_connection());
  // the end of another instance may have removed the mount point during the import, and another
  // process may have created it again
  struct stat now{}, ours{};
  const bool is_there = ::lstat(config_.mount_dir.c_str(), &now) == 0;
  const bool is_another = is_there && ::fstat(point_.get(), &ours) == 0 &&
                          (now.st_ino != ours.st_ino || now.st_dev != ours.st_dev);
  if (is_another || (!is_there && errno == ENOENT)) {
    made_point_ = false;  // our directory is gone
    EFS_TRY(prepare_point());
  }
  auto fuse = privileges_.mount(point_.get(), options_.flags, options_.source);
  if (!fuse) {
    return fail(fuse.error().code,
                "cannot mount at " + config_.mount_dir + ": " + describe(fuse.error()));
  }
  // This descriptor would keep the directory below the mount busy.
  point_.reset();
  EFS_TRY(serve_in_thread(std::move(*fuse), std::nullopt));
  EFS_TRY(wait_for_kernel());
  probe_passthrough();
  return {};
}

Status MountService::resume(SupervisorClient::Connection connection, bool doubtful) {
  session_->inherit(connection.backings);
  // From the first request on: this thread must not wait for contents, which are fetched later.
  std::optional<fuse::PutAside::Telling> telling;
  if (doubtful) {
    telling.emplace(buffer_->put_aside, true);
  }
  EFS_TRY(serve_in_thread(std::move(connection.fuse), std::move(connection.init)));
  await_resumed();
  if (doubtful) {
    doubt_names();
  }
  telling.reset();
  probe_passthrough();
  return {};
}

// Waits for the kernel's first request. A call on the mount would also show that it answers, but is
// dangerous: a thread that waits for an answer of its own process cannot be killed and keeps the
// connection open. If the supervisor died meanwhile, this thread would wait forever.
Status MountService::wait_for_kernel() {
  MutexLock lock(mutex_);
  while (!has_begun_ && !has_ended_) {
    changed_.wait(mutex_);
  }
  return has_begun_ ? Status{}
                    : fail(ENOTCONN, "the mount at " + config_.mount_dir + " does not answer");
}

void MountService::note_begun() {
  MutexLock lock(mutex_);
  has_begun_ = true;
  changed_.notify_all();
}

Status MountService::serve(UniqueFd fuse, const std::optional<fuse::InitRequest>& init) {
  const fuse::RequestLoop::Options loop{.most_threads = session_threads(),
                                        .spin = options_.spin,
                                        .join_callers = options_.join_callers};
  const auto keep = [this](const fuse::InitRequest& request) {
    can_be_replaced_ = fuse::offers_resend(request);
    privileges_.keep_init(request);
  };
  try {
    return init ? session_->take_over(
                      std::move(fuse), loop, *init, [this] { note_resumed(); },
                      [this] { privileges_.report_progress(); })
                : session_->serve(std::move(fuse), loop, keep, [this] { note_begun(); });
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

void MountService::note_resumed() {
  MutexLock lock(mutex_);
  has_resumed_ = true;
  changed_.notify_all();
}

// Before that, the kernel would not learn of the changes of a load or unload. Meanwhile the session
// serves the kernel's requests, but no verb runs, so no client relies on a name that is stale in
// the kernel.
void MountService::await_resumed() {
  MutexLock lock(mutex_);
  while (!has_resumed_ && !has_ended_) {
    changed_.wait(mutex_);
  }
}

void MountService::doubt_names() {
  while (true) {
    try {
      return fs::Staging(buffer_->open.files).invalidate_entries();
    } catch (const std::bad_alloc&) {
      log::warn("event=names_not_doubted reason=\"out of memory\" action=\"tries again\"");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

Status MountService::serve_in_thread(UniqueFd fuse, std::optional<fuse::InitRequest> init) {
  if (init) {
    can_be_replaced_ = fuse::offers_resend(*init);
  }
  auto thread = start_thread([this, fd = std::move(fuse), init = std::move(init)]() mutable {
    run_session(std::move(fd), init);
  });
  if (!thread) {
    return with_context(thread.error(), "a thread that serves the mount");
  }
  thread_ = std::move(*thread);
  return {};
}

void MountService::run_session(UniqueFd fuse, const std::optional<fuse::InitRequest>& init) {
  if (const Status served = serve(std::move(fuse), init); !served) {
    log::error("event=session_failed reason=\"{}\"", describe(served.error()));
    privileges_.abort();
  }
  // Now that no successor can go on with the connection.
  buffer_->open.files.close_all({.kind = fs::Owner::Kind::kernel});
  {
    MutexLock lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
  }
  stops_.note_unmounted();
}

std::string MountService::why_daemon_io() const {
  if (!config_.trace.empty()) {
    return "traced: all I/O is served by the daemon";
  }
  if (limits_.any()) {
    return "limited (limit-read, limit-write or limit-ops)";
  }
  if (options_.daemon_io) {
    return "requested (-o daemon-io)";
  }
  if (options_.writeback) {
    return "requested (-o writeback)";
  }
  if (!options_.privileged) {
    return "not started by root";
  }
  if (!buffer_->open.backend.offers_descriptor()) {
    return "the daemon counts the capacity";
  }
  return !refusals_.empty() ? refusals_.begin()->second
                            : "the kernel or libfuse offers no passthrough";
}

std::string MountService::daemon_reason() {
  MutexLock lock(mutex_);
  return session_ && !session_->passthrough() ? why_daemon_io() : "";
}

const char* MountService::waits_for() {
  MutexLock lock(mutex_);
  return waits_for_;
}

void MountService::set_waits_for(const char* text) {
  MutexLock lock(mutex_);
  waits_for_ = text;
}

Json MountService::change_limits(const control::requests::Limit& request) {
  MutexLock lock(mutex_);
  return limits_.change(request, [session = session_.get()](fuse::Limited what) {
    if (session != nullptr) {
      session->rate_changed(what);
    }
  });
}

void MountService::add_status(control::replies::Status& status) {
  MutexLock lock(mutex_);
  if (!is_published_ || !session_) {
    return;
  }
  const bool passthrough = session_->passthrough();
  if (status.store) {
    for (unsigned place = 0; auto& one : status.store->backends) {
      one.io = passthrough && !refusals_.contains(place) ? "passthrough" : "daemon";
      ++place;
    }
  }
  auto& mount = status.mount.emplace();
  mount.io = passthrough ? "passthrough" : "daemon";
  if (!passthrough) {
    mount.io_reason = why_daemon_io();
  }
  mount.writeback = session_->writeback();
  mount.takeover = can_be_replaced_.load();
  if (!mount.takeover) {
    const std::string no_takeover = no_takeover_reason(kernel_release());
    mount.takeover_reason = no_takeover.empty()
                                ? "the kernel does not resend requests (FUSE_NOTIFY_RESEND)"
                                : no_takeover;
  }
  if (limits_.any()) {
    mount.limits = limits_.shown();
  }
  mount.counters = figures_of(session_->counters());
  mount.intercept = figures_of(session_->door());
}

}  // namespace efs::daemon
