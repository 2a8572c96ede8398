// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Fetches the contents of remote files: those that programs wait for, then those that `efs fetch`
// names, those that a program will probably open next (look_ahead.hpp), and those of resources with
// `stage: background`. The requests of the programs are put aside meanwhile (fuse/put_aside.hpp).

#include <atomic>
#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "control/status_reply.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/fetch_queue.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/look_ahead.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "fuse/put_aside.hpp"
#include "stage/copy/progress.hpp"

namespace efs::daemon {

/// One thread calls begin() and end(). The other functions are thread-safe. Its threads call the
/// PFS, which may hang.
class Fetcher final : public StatusSource, public FetchControl {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr unsigned most_threads = 16;
  // those of them that may fetch what no program waits for
  static constexpr unsigned most_background = 4;
  // a turn at the PFS begins no further fetch after this time
  static constexpr std::chrono::seconds longest_turn{60};

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
  void prepare(std::size_t files) override;
  control::replies::TaskOutcome fetch_files(const Request& what,
                                            stage::Progress& progress) override;
  bool is_fetching(std::uint64_t ino) override;
  Background await_background(std::chrono::milliseconds time) override;

 private:
  /// A request of fetch_files().
  struct Asked {
    std::set<std::uint64_t> left;
    std::uint64_t files = 0, bytes = 0, failures = 0;
    Error error{};  // the first one
    stage::Progress* progress = nullptr;
  };

  using Asks = std::list<Asked>;

  void want(std::uint64_t ino) noexcept;
  void opened(std::uint64_t ino) noexcept;
  void note_opened(std::uint64_t ino) noexcept EFS_REQUIRES(mutex_);
  void queue_background(const std::vector<fs::Staging::RemoteFile>& files) EFS_REQUIRES(mutex_);
  void refuse_all() EFS_REQUIRES(mutex_);
  void fail_background() EFS_REQUIRES(mutex_);
  void add_thread() EFS_REQUIRES(mutex_);
  /// Starts threads for so many files that no program waits for.
  void add_threads(std::size_t files) EFS_REQUIRES(mutex_);
  void work() noexcept;
  /// Each returns true if it has done something, without the lock meanwhile.
  bool fetch_next(FetchQueue::Least least) EFS_REQUIRES(mutex_);
  bool fetch_background() EFS_REQUIRES(mutex_);
  bool begin_turn() EFS_REQUIRES(mutex_);
  bool end_turn() EFS_REQUIRES(mutex_);
  bool look_ahead() EFS_REQUIRES(mutex_);
  void expect(const LookAhead::Next& next) EFS_REQUIRES(mutex_);
  void fetch(std::uint64_t ino);
  void count(std::uint64_t ino, const FetchOutcome& outcome) noexcept EFS_REQUIRES(mutex_);
  void count(Asked& asked, std::uint64_t ino, const FetchOutcome& outcome) const noexcept
      EFS_REQUIRES(mutex_);
  void queue_asked(Asks::iterator asked, const Request& what) EFS_REQUIRES(mutex_);
  static control::replies::TaskOutcome outcome_of(const Asked& asked, std::uint64_t already,
                                                  double seconds, bool is_ending);
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
  Asks asked_ EFS_GUARDED_BY(mutex_);
  // files of the background: not tried yet, and those whose last try failed
  std::set<std::uint64_t> background_left_ EFS_GUARDED_BY(mutex_);
  std::set<std::uint64_t> background_failed_ EFS_GUARDED_BY(mutex_);
  // files that were opened, for ahead_; 0: a fetch has failed
  std::deque<std::uint64_t> opened_ EFS_GUARDED_BY(mutex_);
  std::set<std::uint64_t> expected_ EFS_GUARDED_BY(mutex_);  // by ahead_
  bool looks_ EFS_GUARDED_BY(mutex_) = false;                // a thread uses ahead_
  LookAhead ahead_;
  // the turn at the PFS of the background
  enum class Turn : std::uint8_t { none, changes, held };
  Turn turn_ EFS_GUARDED_BY(mutex_) = Turn::none;
  Time turn_until_ EFS_GUARDED_BY(mutex_);
  unsigned in_turn_ EFS_GUARDED_BY(mutex_) = 0;  // fetches that use it
  std::vector<std::jthread> threads_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::daemon
