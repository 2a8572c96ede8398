// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The deadline of a stop: the times that follow from it, the timers that enforce it, and the
// decision which thread ends the process.

#include <functional>
#include <memory>
#include <optional>

#include "base/mutex.hpp"
#include "daemon/timers.hpp"

namespace efs::daemon {

/// The times of a stop request. One that exports has both or neither; one that drops may have only
/// `gone_by`.
struct StopTimes {
  using Time = Timers::Time;
  using Duration = Time::duration;

  std::optional<Time> until;    // the end of the export; unsaved results stay in the store
  std::optional<Time> gone_by;  // the requested end of the instance, somewhat after `until`

  /// The times of a stop that has to end `seconds` after `now`.
  static StopTimes within(double seconds, Time now);

  /// Most of the time belongs to the export. Any other step may use the first quarter of the time
  /// from `begin` to the deadline, and at most `most`. Requires `until`.
  Time quarter(Time begin, Duration most = Duration::max()) const;

  bool operator==(const StopTimes&) const = default;
};

/// Thread-safe. If no thread can start, a timer has no effect and the stop waits for the PFS, as it
/// does without a deadline.
///
/// A function that returns an Alarm returns the one that it replaces. Its action may be running:
/// destroy it without a lock.
class Deadline {
 public:
  using Time = Timers::Time;

  /// They run on the threads of the timers and must not throw.
  struct Actions {
    std::function<void()> cut_export;  // the time of the export is up
    std::function<void()> leave;       // the time of the stop is up: a call to the PFS may hang
    std::function<void()> give_up;     // likewise of a cancelled start
  };

  /// `timers` outlives this object.
  Deadline(Timers& timers, Actions actions);

  Time now() const { return timers_.now(); }

  /// Runs `cut_export` at `until`. The export has ended when the caller destroys the alarm.
  std::unique_ptr<Alarm> end_export_at(Time until);
  /// Likewise, for a stop that was requested while the export runs; until unhurry().
  void hurry(Time until);
  bool is_hurried() const;
  void unhurry();

  /// Runs `leave` after `gone_by` and some grace time; nullopt: never.
  [[nodiscard]] std::unique_ptr<Alarm> set_last_resort(std::optional<Time> gone_by);
  /// Runs `give_up` after `gone_by` and some grace time, and soon without it.
  [[nodiscard]] std::unique_ptr<Alarm> limit_start(std::optional<Time> gone_by);
  [[nodiscard]] std::unique_ptr<Alarm> end_start();

  /// A stop begins: claim_end() is to come.
  void begin_stop();
  /// From here on the start or the stop makes no calls to the PFS. Does not return if another
  /// thread ends the process.
  void claim_end();
  /// Returns true if the caller has to end the process: for one caller, and only before
  /// claim_end().
  [[nodiscard]] bool claim_exit();

 private:
  std::unique_ptr<Alarm> alarm_at(Time time, const std::function<void()>& action);
  std::unique_ptr<Alarm> replace(std::unique_ptr<Alarm> Deadline::* alarm,
                                 std::unique_ptr<Alarm> by);

  Timers& timers_;
  const Actions actions_;
  mutable Mutex mutex_;  // rank 90
  bool end_claimed_ EFS_GUARDED_BY(mutex_) = false;
  bool exit_claimed_ EFS_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Alarm> hurry_ EFS_GUARDED_BY(mutex_);
  std::unique_ptr<Alarm> last_resort_ EFS_GUARDED_BY(mutex_);
  std::unique_ptr<Alarm> start_resort_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::daemon
