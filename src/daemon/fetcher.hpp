// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Fetches the contents of remote files: those that programs wait for, and behind them those of
// resources with `stage: background`. The requests of the programs are put aside meanwhile
// (fuse/put_aside.hpp).

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "control/status_reply.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/fetch_queue.hpp"
#include "daemon/kept_figures.hpp"
#include "fs/filesystem.hpp"
#include "fuse/put_aside.hpp"
#include "stage/copy/progress.hpp"

namespace efs::daemon {

/// One thread calls begin() and end(). put_aside() and add_status() are thread-safe. Its threads
/// call the PFS, which may hang.
class Fetcher final : public StatusSource {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr unsigned most_threads = 16;
  // those of them that may fetch what no program waits for
  static constexpr unsigned most_background = 4;

  /// All outlive this object.
  struct Parts {
    FetchTransfers& transfers;
    KeptFetched* figures = nullptr;  // outlive the worker; null: there are none
  };

  explicit Fetcher(Parts parts);
  /// Waits for the threads.
  ~Fetcher() override;

  /// For the session of the mount. null: not enough descriptors; opens of remote files then fail.
  fuse::PutAside* put_aside() { return aside_.get(); }

  /// Keeps what programs want, from here on. Calls nothing of the PFS, so that the mount, or what
  /// the predecessor left of it, can be served first.
  void begin(fs::Filesystem& files);
  /// Fetches that and the files of the background, from here on. Call it after begin().
  void fetch_all();
  /// Ends the fetches, which leave their files remote, and lets the waiting programs fail. Returns
  /// false if a fetch has not ended at `until`: the PFS does not answer. Repeatable.
  bool end(Time until);

  void add_status(control::replies::Status& status) override;

 private:
  void want(std::uint64_t ino) noexcept;
  void refuse_all() EFS_REQUIRES(mutex_);
  void add_thread() EFS_REQUIRES(mutex_);
  void work() noexcept;
  void fetch(std::uint64_t ino);
  void tell(std::uint64_t ino, const FetchOutcome& outcome);
  /// Ends a fetch that never began.
  void refuse(std::uint64_t ino, int error);

  const Parts its_;
  KeptFetched own_figures_;
  KeptFetched& figures_;
  const std::unique_ptr<fuse::PutAside> aside_;
  stage::Progress progress_;         // of all fetches
  fs::Filesystem* files_ = nullptr;  // between begin() and end(), and while a thread works
  Mutex mutex_;                      // rank 6
  Condition changed_;
  FetchQueue queue_ EFS_GUARDED_BY(mutex_);
  bool serves_ EFS_GUARDED_BY(mutex_) = false;   // between begin() and end()
  bool fetches_ EFS_GUARDED_BY(mutex_) = false;  // between fetch_all() and end()
  unsigned idle_ EFS_GUARDED_BY(mutex_) = 0;
  unsigned background_running_ EFS_GUARDED_BY(mutex_) = 0;
  unsigned working_ EFS_GUARDED_BY(mutex_) = 0;  // threads that have not ended
  std::string error_ EFS_GUARDED_BY(mutex_);     // of the last fetch; "": it went well
  std::vector<std::jthread> threads_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::daemon
