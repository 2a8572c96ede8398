#pragma once
// Turns at the PFS for one instance. A process of its own, the keeper, draws the tickets and holds the slots: it runs as
// the user that the queue's directory belongs to, so that the job's user can neither hold a turn nor fake one, and a
// PFS that hangs holds up neither supervisor nor worker. It believes nothing the worker says but how much it has to move.
// When the worker goes, or the keeper, the turn is free.

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.hpp"
#include "base/user.hpp"
#include "queue/turn.hpp"
#include "stage/progress.hpp"

namespace efs::daemon {

struct QueueOptions {
  std::string directory;  // "": no turns are taken
  std::string job, node;  // as `efs queue` shows them
};

/// Forks the keeper, which closes every other descriptor; the worker's end of the line to it. Called by a worker while
/// it is one thread and, where it is to become another user, still root. An error says why there can be no turns; the
/// instance can do without.
Result<UniqueFd> start_keeper(const QueueOptions& options, const User& user);

/// The worker's side. take() and its Held from one thread; view() from any.
class TurnClient {
 public:
  TurnClient() = default;
  explicit TurnClient(UniqueFd keeper, std::string why_not) : keeper_(std::move(keeper)), why_not_(std::move(why_not)) {}

  /// Holds the turn for a scope and tells the keeper how far the transfer is.
  class Held {
   public:
    Held();
    Held(TurnClient& client, const stage::Progress& progress);
    Held(Held&&) noexcept;
    ~Held();

   private:
    struct Shared;
    std::unique_ptr<Shared> shared_;
  };
  /// Waits for a turn; at once where no turns are taken or the keeper is gone. ECANCELED once `progress.cancel` is set.
  /// After `latest` it goes ahead without one.
  Result<Held> take(queue::Direction direction, std::uint64_t bytes, const stage::Progress& progress, std::optional<std::chrono::steady_clock::time_point> latest = std::nullopt);

  struct Shown {
    queue::Direction direction{};
    queue::Standing standing{};
    std::uint32_t ahead = 0;
    double wait = -1;
    std::string reason;
    Nanoseconds since = 0;  // wall clock: waits since
  };
  /// nullopt while no turn is wanted.
  std::optional<Shown> view() const;

 private:
  void show(std::optional<Shown> shown);
  bool wait_for_answer(Shown& shown, const stage::Progress& progress, Status& given_up);
  bool send(std::uint32_t verb, std::uint32_t direction, std::uint64_t bytes) const;
  void drain() const;

  UniqueFd keeper_;
  std::uint32_t asked_ = 0;  // turns so far: an answer to an earlier one is none
  std::string why_not_;  // turns are wished but cannot be had
  mutable Mutex mutex_;  // rank 90 (leaf): guards shown_
  std::optional<Shown> shown_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::daemon
