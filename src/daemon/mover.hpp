// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Moves contents between the tiers of a job while its programs run (key `tiers`). A thread looks at
// the tiers, and moves what tier_policy.hpp chooses.

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "control/status_reply.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/tier_policy.hpp"
#include "stage/copy/progress.hpp"
#include "stage/pfs/paced_pfs.hpp"

namespace efs::daemon {

/// One thread calls begin() and end(). add_status() is thread-safe.
class Mover final : public StatusSource {
 public:
  using Clock = std::chrono::steady_clock;
  // between two looks at the room
  static constexpr auto look_if_scarce = std::chrono::milliseconds(50);
  static constexpr auto look_if_ample = std::chrono::milliseconds(500);
  // after a round in vain, and between two looks for files that go up: ten times as long as that
  // took, and at least this
  static constexpr auto rest = std::chrono::milliseconds(500);
  static constexpr auto longest_rest = std::chrono::seconds(10);  // after a lack of memory
  // a file that could not move is left alone
  static constexpr auto patience = std::chrono::seconds(10);

  /// All outlive end(), and `figures` this object.
  struct Parts {
    const config::JobConfig& config;  // it has tiers
    TierTransfers& transfers;
    KeptTiers* figures = nullptr;  // outlive the worker; null: there are none
  };

  explicit Mover(Parts parts);
  ~Mover() override;

  /// Keeps the tiers from here on. Without a thread nothing moves: that is logged.
  void begin();
  /// Cancels a move that is running, and waits for its end. Repeatable.
  void end();

  /// Call it after the store has added its part.
  void add_status(control::replies::Status& status) override;

 private:
  /// The inodes that were seen in a tier, each sorted. Those that were not seen for long are
  /// forgotten.
  struct Seen {
    std::vector<std::uint64_t> now, before;
  };

  void work() noexcept;
  /// One round. Returns the time until the next.
  Clock::duration round() noexcept;
  Clock::duration look_and_move();
  std::vector<Tier> look() const;
  /// True if a tier is nearly full.
  bool is_any_near(std::span<const Tier> tiers) const;
  bool is_below_low(const Tier& tier) const;
  /// False if the room of the tiers has changed since the move was planned, so that it is not due.
  bool is_still_wanted(const TierMove& move) const;
  std::vector<MoveCandidate> files_in(std::size_t tier);
  /// `bytes`: of bytes_down().
  void go_down(std::vector<Tier>& tiers, const std::vector<std::uint64_t>& bytes);
  void go_up(std::vector<Tier>& tiers);
  /// Marks as unused what was not in the tier at the last looks: no program has opened it there.
  void note_seen(std::size_t tier, std::vector<MoveCandidate>& files);
  void forget(std::span<const TierMove> moves);
  /// Returns the number of files that have moved.
  std::uint64_t carry_out(std::span<const TierMove> moves);
  /// These have one source and one target.
  std::uint64_t move_group(std::span<const TierMove> moves);
  std::uint64_t move_batch(std::span<const TierMove> moves);
  void note_failures(std::span<const TierMove> moves, const stage::Moves& done);
  bool wait_for_rate(std::uint64_t bytes);
  void set_error(std::size_t tier, std::string why);
  const std::string& id_of(std::size_t tier) const;
  unsigned place_of(std::size_t tier) const;

  const Parts its_;
  const config::Tiers& rules_;
  KeptTiers own_figures_;
  KeptTiers& figures_;
  stage::Progress progress_;
  stage::RateLimit rate_;
  Mutex mutex_;  // rank 90 (leaf)
  Condition changed_;
  bool serves_ EFS_GUARDED_BY(mutex_) = false;  // between begin() and end()
  std::size_t failing_ EFS_GUARDED_BY(mutex_) = 0;
  std::string why_ EFS_GUARDED_BY(mutex_);  // the tier `failing_` is full and gives nothing; ""
  // for the thread
  std::vector<Seen> seen_;
  unsigned looks_ = 0;                                     // for files that go up
  std::map<std::uint64_t, Clock::time_point> left_alone_;  // inodes, and until when
  std::string failure_;                                    // of the last file that could not move
  bool is_told_ = false;                                   // that one could not
  bool is_vain_ = false;                                   // the last round
  Clock::time_point next_look_up_{};
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace efs::daemon
