// SPDX-License-Identifier: BSD-3-Clause
// Mounts an instance and starts its session.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/mounts.hpp"
#include "base/thread.hpp"
#include "control/instances.hpp"
#include "daemon/instance.hpp"
#include "fs/staging.hpp"
#include "image/manifest.hpp"

namespace efs::daemon {
namespace {

// Does the open directory have any entries?
Result<bool> holds_anything(int directory) {
  const auto names = stage::posix_pfs().list(directory);
  return names ? Result<bool>(!names->empty()) : std::unexpected(names.error());
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

}  // namespace

// Does nothing if there is no dead mount.
Status Instance::drop_mount(const std::string& path) {
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
  const Status dropped = supervisor_.drop_dead_mount(parent.get(), path.substr(slash + 1));
  if (!dropped) {
    return fail(dropped.error().code, "mount-dir " + path + " has a mount without a daemon: " +
                                          describe(dropped.error()));
  }
  if (auto thread = start_thread([fd = std::move(last)]() mutable { fd.reset(); })) {
    forgetting_.push_back(std::move(*thread));
  }
  return {};
}

// Drops the mount of a killed instance if the new instance mounts elsewhere. No other process would
// find the old mount.
Status Instance::drop_former_mount(const image::Manifest& before) {
  if (before.mount_dir.empty() || before.mount_dir == options_.config.mount_dir) {
    return {};
  }
  EFS_TRY(drop_mount(before.mount_dir));
  if (before.made_mount_dir) {
    ::rmdir(before.mount_dir.c_str());
  }
  return {};
}

// Checks the mount point before any data moves, so that an unusable mount point fails early and not
// after an hour of import.
Status Instance::prepare_mount_point() {
  const std::string& path = options_.config.mount_dir;
  EFS_TRY(drop_mount(path));
  if (::mkdir(path.c_str(), 0755) == 0) {
    made_mount_point_ = true;
  } else if (errno != EEXIST) {
    return fail_errno("mount-dir " + path);
  }
  mount_point_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!mount_point_) {
    return fail_errno("mount-dir " + path);
  }
  EFS_TRY(claim_mount_point());
  if (const Status allowed = supervisor_.check_mount(mount_point_.get()); !allowed) {
    return fail(allowed.error().code, "mount-dir " + path + ": " + describe(allowed.error()));
  }
  const auto is_there = holds_anything(mount_point_.get());
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
Status Instance::claim_mount_point() {
  const std::string& path = options_.config.mount_dir;
  if (::flock(mount_point_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
    return {};
  }
  for (const auto& other : control::list_instances()) {
    const UniqueFd directory(
        ::open(other.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    const auto manifest = other.alive && directory ? image::read_manifest(directory.get())
                                                   : Result<image::Manifest>(fail(ENOENT));
    if (manifest && other.name != options_.config.name && manifest->mount_dir == path) {
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

// Opens use the same I/O path for the whole life of the mount, also under a successor.
SupervisorClient* Instance::passthrough_registry() {
  const bool passthrough = options_.privileged && !options_.daemon_io && !options_.writeback &&
                           options_.config.trace.empty() && !limits_.any() &&
                           store_.backend->offers_descriptor();
  return passthrough ? &supervisor_ : nullptr;
}

void Instance::open_session() {
  const bool traced = !options_.config.trace.empty();
  const bool stacked = may_be_stacked(store_.metadata.get()) ||
                       std::ranges::any_of(store_.others, [](const StoreMember& one) {
                         return may_be_stacked(one.root.get());
                       });
  KeptFigures* const kept = options_.figures;
  session_ = std::make_unique<fuse::Session>(
      *filesystem_, passthrough_registry(),
      fuse::Session::Options{.sinks = sinks(),
                             .uncached = traced || limits_.any(),
                             .writeback = options_.writeback,
                             .stacked = stacked,
                             .xattr = options_.config.xattr,
                             .counters = kept != nullptr ? &kept->counters : nullptr,
                             .usage = kept != nullptr ? &kept->usage : nullptr,
                             .due_work = space_samples(),
                             .limits = limits_.of_session(),
                             .door = options_.door,
                             .door_totals = kept != nullptr ? &kept->door : nullptr});
}

// Neither root's rights nor the answer to INIT guarantee passthrough, so try it. The lock files of
// the stores belong to the user and are on the file systems of the containers.
void Instance::probe_passthrough() {
  if (!session_->passthrough()) {
    return;
  }
  const unsigned places = store_.backend->places();
  std::map<unsigned, std::string> refusals;
  for (unsigned place = 0; place < places; ++place) {
    if (!store_.backend->at(place).offers_descriptor()) {
      refusals[place] = "the daemon counts the capacity";
      continue;
    }
    const fuse::Registration file{
        .ino = 0, .fd = place == 0 ? store_.lock.get() : store_.others.at(place - 1).lock.get()};
    const auto id = supervisor_.open_backing(std::span(&file, 1)).front();
    if (id) {
      supervisor_.close_backing(std::span(&*id, 1));
    } else if (!passes(id.error().code)) {
      refusals[place] = reason_of_refusal(id.error());
      log::warn("event=no_passthrough backend={} reason=\"{}\" action=\"the daemon does the I/O\"",
                options_.config.backends.at(place).id, refusals[place]);
    }
  }
  if (refusals.size() == places) {
    session_->refuse_passthrough();
  }
  MutexLock lock(mutex_);
  refusals_ = std::move(refusals);
}

Status Instance::mount() {
  open_session();
  EFS_TRY(filesystem_->new_connection());
  // the end of another instance may have removed the mount point during the import, and another
  // process may have created it again
  struct stat now{}, ours{};
  const bool is_there = ::lstat(options_.config.mount_dir.c_str(), &now) == 0;
  const bool is_another = is_there && ::fstat(mount_point_.get(), &ours) == 0 &&
                          (now.st_ino != ours.st_ino || now.st_dev != ours.st_dev);
  if (is_another || (!is_there && errno == ENOENT)) {
    made_mount_point_ = false;  // our directory is gone
    EFS_TRY(prepare_mount_point());
  }
  auto fuse = supervisor_.mount(mount_point_.get(), options_.mount_flags, options_.source);
  if (!fuse) {
    return fail(fuse.error().code,
                "cannot mount at " + options_.config.mount_dir + ": " + describe(fuse.error()));
  }
  // This descriptor would keep the directory below the mount busy.
  mount_point_.reset();
  EFS_TRY(serve_in_thread(std::move(*fuse), std::nullopt));
  EFS_TRY(wait_for_kernel());
  probe_passthrough();
  keep_house();
  ready_ = true;
  note(Moment::running);
  enter(Event::mounted);
  return {};
}

// Waits for the kernel's first request. A call on the mount would also show that it answers, but is
// dangerous: a thread that waits for an answer of its own process cannot be killed and keeps the
// connection open. If the supervisor died meanwhile, this thread would wait forever.
Status Instance::wait_for_kernel() {
  MutexLock lock(mutex_);
  while (!session_begun_ && !session_ended_) {
    changed_.wait(mutex_);
  }
  return session_begun_
             ? Status{}
             : fail(ENOTCONN, "the mount at " + options_.config.mount_dir + " does not answer");
}

void Instance::record_begun() {
  MutexLock lock(mutex_);
  session_begun_ = true;
  changed_.notify_all();
}

Status Instance::serve(UniqueFd fuse, const std::optional<fuse::InitRequest>& init) {
  const fuse::RequestLoop::Options loop{.most_threads = session_threads(),
                                        .spin = options_.spin,
                                        .join_callers = options_.join_callers};
  const auto keep = [this](const fuse::InitRequest& request) {
    can_be_replaced_ = fuse::offers_resend(request);
    supervisor_.keep_init(request);
  };
  try {
    return init ? session_->take_over(
                      std::move(fuse), loop, *init, [this] { record_resumed(); },
                      [this] { supervisor_.report_progress(); })
                : session_->serve(std::move(fuse), loop, keep, [this] { record_begun(); });
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

void Instance::record_resumed() {
  MutexLock lock(mutex_);
  session_resumed_ = true;
  changed_.notify_all();
}

// Waits until the session accepts notifications. Before that, the kernel would not learn of the
// changes of a load or unload. Meanwhile the session serves the kernel's requests, but no verb
// runs, so no client relies on a name that is stale in the kernel.
void Instance::catch_up_with_predecessor() {
  {
    MutexLock lock(mutex_);
    while (!session_resumed_ && !session_ended_) {
      changed_.wait(mutex_);
    }
  }
  for (bool done = tasks_->lost() == 0; !done;) {
    try {
      fs::Staging(*filesystem_).invalidate_entries();
      done = true;
    } catch (const std::bad_alloc&) {
      log::warn("event=names_not_doubted reason=\"out of memory\" action=\"tries again\"");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

Status Instance::serve_in_thread(UniqueFd fuse, std::optional<fuse::InitRequest> init) {
  if (init) {
    can_be_replaced_ = fuse::offers_resend(*init);
  }
  auto thread = start_thread([this, fd = std::move(fuse), init = std::move(init)]() mutable {
    const Status served = serve(std::move(fd), init);
    if (!served) {
      log::error("event=session_failed reason=\"{}\"", describe(served.error()));
      supervisor_.abort();
    }
    // Now that no successor can go on with the connection.
    filesystem_->close_all({.kind = fs::Owner::Kind::kernel});
    {
      MutexLock lock(mutex_);
      session_ended_ = true;
      changed_.notify_all();
    }
    stops_.note_unmounted();
  });
  if (!thread) {
    return with_context(thread.error(), "a thread that serves the mount");
  }
  session_thread_ = std::move(*thread);
  return {};
}

}  // namespace efs::daemon
