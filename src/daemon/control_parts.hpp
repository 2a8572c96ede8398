// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The parts of a job that its control requests need, as narrow interfaces. A test replaces the
// parts. All functions are thread-safe.

#include <sys/types.h>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "control/replies.hpp"
#include "control/requests.hpp"
#include "control/status_reply.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "stage/copy/progress.hpp"
#include "stage/import/fetch.hpp"
#include "stage/live/drop.hpp"
#include "stage/live/evict.hpp"
#include "stage/live/load.hpp"
#include "stage/live/move.hpp"
#include "stage/live/unload.hpp"

namespace efs::daemon {

/// The facts about an instance that this worker does not change.
struct JobFacts {
  const config::JobConfig& config;
  std::string directory;  // of the instance; contains the control socket
  pid_t supervisor = 0;
  unsigned takeovers = 0;  // number of dead workers before this one
  std::chrono::system_clock::time_point started = std::chrono::system_clock::now();

  bool is_successor() const { return takeovers > 0; }
};

/// Fills its parts of the status of the job.
class StatusSource {
 public:
  StatusSource() = default;
  virtual ~StatusSource() = default;
  StatusSource(const StatusSource&) = delete;
  StatusSource& operator=(const StatusSource&) = delete;

  virtual void add_status(control::replies::Status& status) = 0;
};

/// The file system of a job and the store below it.
struct OpenBuffer {
  fs::Filesystem& files;
  Backend& backend;
};

/// The buffer, for requests that use its files while programs run.
class BufferAccess {
 public:
  BufferAccess() = default;
  virtual ~BufferAccess() = default;
  BufferAccess(const BufferAccess&) = delete;
  BufferAccess& operator=(const BufferAccess&) = delete;

  /// Calls `work`; the buffer stays open until `work` returns. Returns false, without a call,
  /// before programs use the buffer and after its end.
  virtual bool use(const std::function<void(const OpenBuffer&)>& work) = 0;
  /// Does the store stay when the instance ends?
  virtual bool is_kept() const = 0;
};

struct MoveRequest {
  std::vector<std::string> names;  // below root-dir; a directory stands for all files below it
  unsigned place = 0;              // number of the backend
};

/// Transfers while programs run. A task calls them: the buffer stays open meanwhile.
class LiveTransfers {
 public:
  LiveTransfers() = default;
  virtual ~LiveTransfers() = default;
  LiveTransfers(const LiveTransfers&) = delete;
  LiveTransfers& operator=(const LiveTransfers&) = delete;

  virtual control::replies::TaskOutcome load(const stage::LoadRequest& what,
                                             stage::Progress& progress) = 0;
  virtual control::replies::TaskOutcome unload(const stage::UnloadRequest& what,
                                               stage::Progress& progress) = 0;
  /// Moves contents to another backend, as stage::move_files().
  virtual control::replies::TaskOutcome move(const MoveRequest& what,
                                             stage::Progress& progress) = 0;
};

/// The export of results while programs run that no client has asked for.
class DrainTransfers {
 public:
  DrainTransfers() = default;
  virtual ~DrainTransfers() = default;
  DrainTransfers(const DrainTransfers&) = delete;
  DrainTransfers& operator=(const DrainTransfers&) = delete;

  /// `sets`: directories that go whole or not at all, see stage::UnloadRequest.
  virtual stage::Receipt drain(std::vector<std::string> paths, std::vector<std::string> sets,
                               stage::Progress& progress) = 0;
  /// Drops these versions from the buffer, see stage::drop().
  virtual stage::Dropped drop(const std::vector<stage::OldVersion>& versions,
                              stage::Progress& progress) = 0;
};

using stage::FetchOutcome;

/// The fetch of contents that the buffer does not have yet, while programs run.
class FetchTransfers {
 public:
  FetchTransfers() = default;
  virtual ~FetchTransfers() = default;
  FetchTransfers(const FetchTransfers&) = delete;
  FetchTransfers& operator=(const FetchTransfers&) = delete;

  /// As stage::fetch_content().
  virtual FetchOutcome fetch(std::uint64_t ino, stage::Progress& progress) = 0;

  /// False: the functions below are not needed.
  virtual bool takes_turns() const = 0;
  /// Waits for a turn at the PFS, for fetches that no program waits for. Fails once
  /// `progress.cancel` is set; end_turn() is then not due. One turn at a time.
  virtual Status begin_turn(std::uint64_t bytes, const stage::Progress& progress) = 0;
  virtual void end_turn() = 0;
  /// True if a load waits for the end of this turn.
  virtual bool is_turn_awaited() const = 0;
};

/// The fetches that clients ask for, or wait for.
class FetchControl {
 public:
  struct File {
    std::uint64_t ino = 0;
    std::uint64_t size = 0;
  };

  struct Request {
    std::vector<File> files;    // that are remote
    std::uint64_t already = 0;  // further files, whose contents are here
  };

  /// The files of the background.
  struct Background {
    std::uint64_t left = 0;    // to be fetched, or being fetched
    std::uint64_t failed = 0;  // that could not be fetched, and that no later try has fetched
    std::string last_error{};  // while the last fetch of any file failed
    bool is_over = false;      // none is left
    bool is_ending = false;    // none is fetched any more: the instance ends
  };

  FetchControl() = default;
  virtual ~FetchControl() = default;
  FetchControl(const FetchControl&) = delete;
  FetchControl& operator=(const FetchControl&) = delete;

  /// Starts the threads for a request of so many files. Threads have the priority of their caller,
  /// which is lower in a task.
  virtual void prepare(std::size_t files) = 0;
  /// Fetches these files before all others but those that programs wait for. A task calls it: the
  /// buffer stays open meanwhile.
  virtual control::replies::TaskOutcome fetch_files(const Request& what,
                                                    stage::Progress& progress) = 0;
  /// True while the content of the file is being copied.
  virtual bool is_fetching(std::uint64_t ino) = 0;
  /// Waits until no file of the background is left, at most so long.
  virtual Background await_background(std::chrono::milliseconds time) = 0;
};

/// The eviction of contents that the PFS has.
class EvictTransfers {
 public:
  EvictTransfers() = default;
  virtual ~EvictTransfers() = default;
  EvictTransfers(const EvictTransfers&) = delete;
  EvictTransfers& operator=(const EvictTransfers&) = delete;

  /// Frees the room of evictions that a dead worker has begun.
  virtual void end_evictions() = 0;
  /// As stage::evict().
  virtual stage::Eviction evict(std::uint64_t bytes, stage::Progress& progress) = 0;
  virtual Space space() = 0;
};

/// The moves of contents between backends that no client has asked for.
class TierTransfers {
 public:
  TierTransfers() = default;
  virtual ~TierTransfers() = default;
  TierTransfers(const TierTransfers&) = delete;
  TierTransfers& operator=(const TierTransfers&) = delete;

  virtual Space space_of(unsigned place) = 0;
  /// As fs::Staging::move_candidates().
  virtual std::vector<fs::Staging::MoveCandidate> move_candidates(unsigned place) = 0;
  /// As stage::move_files().
  virtual stage::Moves move_files(std::span<const std::string> paths, unsigned place,
                                  stage::Progress& progress) = 0;
};

/// The mount that programs use.
class MountControl {
 public:
  MountControl() = default;
  virtual ~MountControl() = default;
  MountControl(const MountControl&) = delete;
  MountControl& operator=(const MountControl&) = delete;

  /// Text about the wait of the current unmount; null: no unmount waits.
  virtual const char* waits_for() = 0;
  /// Changes the limits of the mount. Returns the answer to the client.
  virtual control::Json change_limits(const control::requests::Limit& request) = 0;
};

}  // namespace efs::daemon
