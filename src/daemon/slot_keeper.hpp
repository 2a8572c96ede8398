#pragma once
// Turns at the PFS for one instance. A process of its own, the keeper, draws the tickets and holds
// the slots: it runs as the user that the queue's directory belongs to, so that the job's user can
// neither hold a turn nor fake one, and a PFS that hangs holds up neither supervisor nor worker. It
// believes nothing the worker says but how much it has to move. When the worker goes, or the
// keeper, the turn is free.

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
  std::string directory;  // "": no turns are taken
  std::string job, node;  // as `efs queue` shows them
};

/// The worker's ends of the lines to the keeper, one for each direction.
using KeeperLines = std::array<UniqueFd, 2>;

/// Forks the keeper, which closes every other descriptor. Called by a worker while it is one thread
/// and, where it is to become another user, still root. Touches nothing on the PFS itself. An error
/// says why there can be no turns; the instance can do without.
Result<KeeperLines> start_keeper(const QueueOptions& options, const User& user);

struct SlotLimits {
  // when a transfer goes ahead without a turn
  std::optional<std::chrono::steady_clock::time_point> latest;
  // when it must be over, for the queue's policy to know
  std::optional<std::chrono::steady_clock::time_point> end;
};

/// The worker's side. Of each direction one turn at a time, by one thread; view() from any. Never
/// waits for a keeper that hangs at the PFS.
class SlotClient {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // of a keeper that is asked for a turn; then it hangs
  static constexpr std::chrono::seconds longest_silence{300};

  SlotClient() = default;
  explicit SlotClient(KeeperLines keeper, std::string why_not,
                      std::chrono::duration<double> silence = longest_silence);

  /// Holds the turn for a scope and tells the keeper how far the transfer is.
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

  /// Waits for a turn; at once where no turns are taken or the keeper is gone. ECANCELED once
  /// `progress.cancel` is set. After `latest`, and where the queue does not answer for its own
  /// longest wait, it goes ahead without one.
  Result<Held> take(queue::Direction direction, std::uint64_t bytes,
                    const stage::Progress& progress, const SlotLimits& limits = {});

  struct Shown {
    queue::Direction direction{};
    queue::Standing standing{};
    std::uint32_t ahead = 0;
    double wait = -1;
    std::string reason;
    Nanoseconds since = 0;  // wall clock: waits since
  };

  /// nullopt while no turn of this direction is wanted.
  std::optional<Shown> view(queue::Direction direction) const;

 private:
  struct Line {
    UniqueFd keeper;
    std::uint32_t asked = 0;  // turns so far: an answer to an earlier one is none
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
  std::string why_not_;  // turns are wished but cannot be had
  std::chrono::duration<double> silence_ = longest_silence;
  mutable Mutex mutex_;  // rank 90 (leaf)
  std::array<std::optional<Shown>, 2> shown_ EFS_GUARDED_BY(mutex_);
  // as the keeper said last
  std::chrono::duration<double> longest_wait_ EFS_GUARDED_BY(mutex_){
      queue::Settings().longest_wait};
};

}  // namespace efs::daemon
