// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Turns at the PFS for one instance. A separate process, the keeper, draws the tickets and locks
// the slots. The keeper runs as the owner of the queue's directory, so the job's user can neither
// block nor forge a slot. A hanging PFS blocks only the keeper, not the supervisor or the worker.
// The keeper trusts the worker's word only for the number of bytes to move. If the worker or the
// keeper dies, the slot becomes free.

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.hpp"
#include "base/user.hpp"
#include "queue/turn.hpp"
#include "stage/copy/progress.hpp"

namespace efs::daemon {

struct QueueOptions {
  std::string directory;  // "": no turns are used
  std::string job, node;  // `efs queue` shows them
};

/// The worker's ends of the sockets to the keeper, one for each direction.
using KeeperLines = std::array<UniqueFd, 2>;

/// Forks the keeper, which closes all other descriptors. The worker must call this while it has
/// only one thread and, if it will change its user, while it is still root. The call does not touch
/// the PFS. An error states why turns are not available; the instance can run without them.
Result<KeeperLines> start_keeper(const QueueOptions& options, const User& user);

struct SlotLimits {
  // when a transfer starts even without a turn
  std::optional<std::chrono::steady_clock::time_point> latest;
  // when the transfer must be complete, for the queue's policy
  std::optional<std::chrono::steady_clock::time_point> end;
};

/// The worker's side. Each direction has at most one turn at a time, used by one thread. Any thread
/// may call view(). Never waits for a keeper that hangs at the PFS.
class SlotClient {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // the longest time without an answer of the keeper; after it the keeper counts as hung
  static constexpr std::chrono::seconds longest_silence{300};

  SlotClient() = default;
  explicit SlotClient(KeeperLines keeper, std::string why_not,
                      std::chrono::duration<double> silence = longest_silence);

  /// Holds the turn for a scope and reports the progress of the transfer to the keeper.
  class Held {
   public:
    Held();
    Held(SlotClient& client, queue::Direction direction, const stage::Progress& progress);
    Held(Held&&) noexcept;
    ~Held();

   private:
    struct Shared;
    std::unique_ptr<Shared> shared_;
  };

  /// Waits for a turn. Returns at once if no turns are used or the keeper is gone. Fails with
  /// ECANCELED once `progress.cancel` is set. Returns without a turn after `limits.latest`, or if
  /// the queue does not answer within its own longest wait.
  Result<Held> take(queue::Direction direction, std::uint64_t bytes,
                    const stage::Progress& progress, const SlotLimits& limits = {});

  /// False: take() never waits.
  bool takes_turns() const { return takes_turns_; }

  struct Shown {
    queue::Direction direction{};
    queue::Standing standing{};
    std::uint32_t ahead = 0;
    double wait = -1;
    std::string reason;
    Nanoseconds since = 0;  // wall clock: start of the wait
  };

  /// Returns nullopt while this direction neither waits for a turn nor has one.
  std::optional<Shown> view(queue::Direction direction) const;

 private:
  struct Line {
    UniqueFd keeper;
    std::uint32_t asked = 0;  // number of turns so far; an answer for an earlier number is ignored
  };
  struct Waiting;

  Line& line(queue::Direction direction) { return lines_[static_cast<std::size_t>(direction)]; }

  void show(queue::Direction direction, std::optional<Shown> shown);
  void hear(Line& from, Waiting& waiting) const;
  void look(Line& from, Waiting& waiting, const stage::Progress& progress) const;
  void wait_until_over(Line& from, Waiting& waiting, std::uint64_t bytes,
                       const stage::Progress& progress);
  static bool send(const Line& to, std::uint32_t verb, std::uint64_t bytes,
                   double seconds_left = 0);
  static void release(Line& of);
  static std::string drain(const Line& of);
  void hear_held(queue::Direction direction);

  std::array<Line, 2> lines_;
  bool takes_turns_ = false;
  std::string why_not_;  // why turns are configured but not available
  std::chrono::duration<double> silence_ = longest_silence;
  mutable Mutex mutex_;  // rank 90 (leaf)
  std::array<std::optional<Shown>, 2> shown_ EFS_GUARDED_BY(mutex_);
  // from the last answer of the keeper
  std::chrono::duration<double> longest_wait_ EFS_GUARDED_BY(mutex_){
      queue::Settings().longest_wait};
};

}  // namespace efs::daemon
