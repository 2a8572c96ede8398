// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The mount of a job: the mount point, the session that serves it, and the unmount.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/door_memory.hpp"
#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/job_store.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/mount_limits.hpp"
#include "daemon/stop_coordinator.hpp"
#include "daemon/supervisor_client.hpp"
#include "fuse/session.hpp"
#include "image/manifest.hpp"

namespace efs::daemon {

struct MountOptions {
  bool privileged = false;  // the supervisor is root
  bool daemon_io = false;   // do not use passthrough, even if the kernel offers it
  bool writeback = false;   // the kernel collects writes; excludes passthrough
  std::uint64_t flags = 0;
  std::chrono::microseconds spin{50};  // see fuse/request_loop.hpp
  bool join_callers = true;            // see fuse/request_loop.hpp
  std::string source{};                // the source that mount(8) shows
  bool successor = false;              // the worker replaces a dead one
  KeptFigures* figures = nullptr;      // outlive the mount; null: the worker has its own
  DoorMemory* door = nullptr;          // likewise; null: the mount has no door
};

/// The buffer below a mount. Borrowed; outlives the session.
struct MountedBuffer {
  OpenBuffer open;
  std::vector<StorePlace> places;
  std::vector<fuse::EventSink*> sinks;  // are told of every request
  fuse::PutAside* put_aside = nullptr;  // see fuse::Session::Options
};

/// One thread, that of the instance, mounts and unmounts. The functions of MountControl and
/// StatusSource, daemon_reason() and remove_point() are thread-safe.
class MountService final : public StatusSource, public MountControl {
 public:
  /// All outlive this object.
  MountService(const config::JobConfig& config, MountOptions options, MountPrivileges& privileges,
               StopCoordinator& stops);
  ~MountService() override;

  // -- the mount point

  /// Drops the mount of a killed instance if the new instance mounts elsewhere. No other process
  /// would find the old mount.
  Status drop_former(const image::Manifest& before);
  /// Creates, checks and locks the mount directory. Call it before any data moves, so that an
  /// unusable mount point fails early and not after an hour of import.
  Status prepare_point();

  /// True if the mount directory is to be removed at the end.
  bool made_point() const { return made_point_; }

  void set_made_point(bool made) { made_point_ = made; }

  /// Unlocks the mount directory of a failed start.
  void release_point() { point_.reset(); }

  /// Removes a mount directory that efs created. Skips the removal if its file system hangs.
  void remove_point();

  // -- the session

  void open_session(MountedBuffer buffer);
  /// Mounts, and serves the mount in a thread. Returns when the kernel uses the mount. Needs an
  /// open session.
  Status mount();
  /// Continues the connection of a dead worker. Returns when the session accepts notifications to
  /// the kernel. `doubt_names`: a load, an unload or a drop of the worker may have changed names
  /// that the kernel still knows.
  Status resume(SupervisorClient::Connection connection, bool doubt_names);

  /// From here on status shows the session.
  void publish() { is_published_ = true; }

  bool has_session() const { return session_ != nullptr; }

  /// After a failed start, which has written nothing: ends a session that serves. No program may
  /// delay this end.
  void abort();
  /// Closes the session. It does not serve any more.
  void close_session();
  /// Why the daemon does the I/O; "" if it does not, or if there is no session.
  std::string daemon_reason();

  // -- the unmount

  /// Unmounts for a stop and waits for the end of the session. EBUSY while programs use the mount,
  /// after some retries. If root has ended the connection, waits as long as programs stay in the
  /// mount; the time that the job file allows a stop, in `request`, begins after they have left.
  Status unmount_for(StopRequest& request);
  /// The text for waits_for(); null: none.
  void set_waits_for(const char* text);

  // -- for requests

  const char* waits_for() override;
  control::Json change_limits(const control::requests::Limit& request) override;
  /// Adds "io" to each of "backends".
  void add_status(control::replies::Status& status) override;

 private:
  using Clock = std::chrono::steady_clock;

  Status drop_dead(const std::string& path);
  Status claim_point();
  fuse::BackingRegistrar* passthrough_registry();
  fuse::DueWork* space_samples(Backend& backend);
  /// Registers one file of each backend with the kernel, to learn whether passthrough works. The
  /// connection must exist.
  void probe_passthrough();
  Status serve_in_thread(UniqueFd fuse, std::optional<fuse::InitRequest> init);
  Status serve(UniqueFd fuse, const std::optional<fuse::InitRequest>& init);
  void run_session(UniqueFd fuse, const std::optional<fuse::InitRequest>& init);
  Status wait_for_kernel();
  void note_begun();
  void note_resumed();
  void await_resumed();
  void doubt_names();
  std::string why_daemon_io() const EFS_REQUIRES(mutex_);
  Status unmount(const StopRequest& request);
  /// Serves what waits for a limit, and what comes from now on, at once.
  void lift_limits();
  void await_session_end();
  void say_that_mount_is_elsewhere();

  const config::JobConfig& config_;
  const MountOptions options_;
  MountPrivileges& privileges_;
  StopCoordinator& stops_;
  UniqueFd point_;  // until the mount
  std::atomic<bool> made_point_{false};
  std::vector<std::jthread> forgetting_;  // they drop the kernel's state of dead mounts
  MountLimits limits_;                    // used by session_
  std::optional<MountedBuffer> buffer_;
  std::unique_ptr<fuse::DueWork> space_samples_;  // used by session_ and its requests
  // a successor can continue if this worker dies, according to the kernel
  std::atomic<bool> can_be_replaced_{false};
  std::atomic<bool> is_published_{false};

  Mutex mutex_;  // rank 5; under it the session is read, and never the StopCoordinator
  Condition changed_;
  // by backend index: why the kernel refuses passthrough for the backend's files
  std::map<unsigned, std::string> refusals_ EFS_GUARDED_BY(mutex_);
  bool has_ended_ EFS_GUARDED_BY(mutex_) = false;
  // the kernel has sent its first request and has received the answer
  bool has_begun_ EFS_GUARDED_BY(mutex_) = false;
  // in a successor: the session accepts notifications to the kernel
  bool has_resumed_ EFS_GUARDED_BY(mutex_) = false;
  const char* waits_for_ EFS_GUARDED_BY(mutex_) = nullptr;
  std::unique_ptr<fuse::Session> session_;  // made and destroyed under mutex_
  std::jthread thread_;                     // it serves session_
};

}  // namespace efs::daemon
