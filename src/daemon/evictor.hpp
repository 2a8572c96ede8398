// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes room in a full buffer, for jobs with `evict: when-full`: a thread keeps a reserve free, and
// operations that find no room wait for it.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "control/status_reply.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/drainer.hpp"
#include "daemon/kept_figures.hpp"
#include "fs/filesystem.hpp"
#include "fs/room_maker.hpp"
#include "stage/copy/progress.hpp"

namespace efs::daemon {

/// The bytes that stay available, if they can: programs write into them without a word.
constexpr std::uint64_t reserve_of(const Space& space) {
  return space.capacity / 8;
}

/// The bytes to free: with less than an eighth of the capacity available, what is missing to a
/// quarter; and at least what is missing to `wanted` and the journal's share. 0: nothing.
std::uint64_t bytes_to_free(const Space& space, std::uint64_t wanted);

/// One thread calls begin() and end(). make_room(), keep_reserve() and add_status() are
/// thread-safe. Its thread calls the PFS, which may hang.
class Evictor final : public fs::RoomMaker, public StatusSource {
 public:
  using Clock = std::chrono::steady_clock;
  // between two looks at the room
  static constexpr auto look_if_scarce = std::chrono::milliseconds(50);
  static constexpr auto look_if_ample = std::chrono::milliseconds(500);
  // after a round that freed nothing: a walk over all files is not repeated for each operation
  static constexpr auto rest = std::chrono::milliseconds(250);
  static constexpr auto longest_rest = std::chrono::seconds(4);  // ten times as long as the round
  // the longest make_room() of a request, and of a fetch, which knows how much it needs
  static constexpr auto patience = std::chrono::seconds(5);
  static constexpr auto patience_of_fetches = std::chrono::seconds(20);
  static constexpr auto patience_of_opens = std::chrono::seconds(1);  // there is room yet
  static constexpr auto between_lines = std::chrono::seconds(5);      // of the log
  // The most requests that wait for more than a round: other threads serve what may give room, such
  // as closes.
  static constexpr unsigned most_waiting = 8;

  /// All outlive end(), and `figures` this object.
  struct Parts {
    EvictTransfers& transfers;
    const Drainer* drainer = nullptr;  // its results give room later; null: there is none
    KeptEvicted* figures = nullptr;    // outlive the worker; null: there are none
  };

  explicit Evictor(Parts parts);
  /// Waits for the thread.
  ~Evictor() override;

  /// Keeps the reserve from here on. Without a thread, a full buffer stays full: that is logged.
  void begin(fs::Filesystem& files);
  /// Returns false if an eviction has not ended at `until`: the PFS does not answer. Repeatable.
  bool end(Clock::time_point until);

  bool make_room(std::uint64_t bytes) noexcept override;
  void keep_reserve() noexcept override;
  void add_status(control::replies::Status& status) override;

 private:
  /// The reserve behind so many bytes, which are available.
  void keep_behind(std::uint64_t bytes) EFS_EXCLUDES(mutex_);
  /// Waits until a vain round is long enough ago.
  void await_rest(Clock::time_point end) EFS_REQUIRES(mutex_);
  /// Waits for a round. Returns true if it has freed room.
  bool frees_some(std::uint64_t bytes, Clock::time_point end) EFS_REQUIRES(mutex_);
  void work() noexcept;
  /// One round. Returns the bytes that it has freed.
  std::uint64_t evict(std::uint64_t wanted);
  void tell(const stage::Eviction& done);
  /// Logs what was evicted since the last line, unless that line is too new.
  void tell_sum(bool is_last);

  const Parts its_;
  KeptEvicted own_figures_;
  KeptEvicted& figures_;
  stage::Progress progress_;
  fs::Filesystem* files_ = nullptr;  // between begin() and end()
  Mutex mutex_;                      // rank 6
  Condition changed_;
  bool serves_ EFS_GUARDED_BY(mutex_) = false;       // between begin() and end()
  bool works_ EFS_GUARDED_BY(mutex_) = false;        // the thread has not ended
  std::uint64_t wanted_ EFS_GUARDED_BY(mutex_) = 0;  // by those who wait
  unsigned waiting_ EFS_GUARDED_BY(mutex_) = 0;      // threads that wait between rounds
  unsigned asking_ EFS_GUARDED_BY(mutex_) = 0;       // threads that wait for a round
  std::uint64_t rounds_ EFS_GUARDED_BY(mutex_) = 0;  // that have ended
  bool is_running_ EFS_GUARDED_BY(mutex_) = false;   // another round
  bool has_freed_ EFS_GUARDED_BY(mutex_) = false;    // in the last round
  Clock::time_point rests_until_ EFS_GUARDED_BY(mutex_){};
  std::string why_ EFS_GUARDED_BY(mutex_);  // the last round freed nothing; "": it did
  // for the thread
  bool is_told_ = false;  // that nothing could be freed
  std::uint64_t untold_files_ = 0, untold_bytes_ = 0;
  Clock::time_point tells_at_{};
  bool is_unfinished_ = false;  // Eviction::is_unfinished of the last round
  std::jthread thread_;
};

}  // namespace efs::daemon
