// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Coordinates the clients that request stops with the thread that carries a stop out. Owns the
// state of the job, the requests with their tickets, and the outcome.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/mutex.hpp"
#include "control/replies.hpp"
#include "daemon/deadline.hpp"
#include "daemon/job_state.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"

namespace efs::daemon {

/// As by `efs stop`. Signals use this, too.
struct StopRequest {
  bool stage_out = true;
  bool keep = false;        // leave the store for the next start
  bool start_only = false;  // do nothing if the start has succeeded
  StopTimes times;
  bool inherits = false;  // `times` come from an earlier request that this one continues
  bool cut_off = false;   // do not wait for mount namespaces that still have the mount
  // never replace a file that is newer than this instance: another run of the job may have
  // written it
  bool merge = false;

  // a stop that differs from the usual export; only a client can repeat it after a takeover
  bool is_unusual() const { return keep || merge || !stage_out; }

  // seconds since the first request, if a client repeats a request to a dead predecessor
  double asked_ago = 0;
  std::uint64_t ticket = 0;  // of the waiting client; 0: none
};

/// The outcome of a stop for which there was no memory for a text.
struct NoMemory {};

/// The outcome of a stop that was carried out.
using StopAnswer = std::variant<NoMemory, control::replies::Stopped, control::replies::StopFailed>;

/// Thread-safe. Several clients may request stops at the same time: the worker carries out the last
/// request, which adopts the options of the earlier ones. Its outcome is the answer to all of them.
class StopCoordinator {
 public:
  using Time = Timers::Time;

  struct Options {
    bool successor = false;       // the worker replaces a dead one
    unsigned usual_deadline = 0;  // of the job file, in seconds; 0: none
  };

  /// `progress`: of the import or export that a request may cancel. Both outlive this object.
  StopCoordinator(Options options, Deadline& deadline, stage::Progress& progress);

  // -- the state of the job

  State state() const;
  /// Changes the state and wakes all that wait. The caller does what the step says.
  [[nodiscard]] Step enter(Event event);
  /// The kernel has ended the session of the mount.
  void note_unmounted();
  bool is_unmounted() const;
  /// Waits until the state is not `recovering`.
  void await_recovery();
  /// Each of these waits for a change, until `end` at most, and returns the present answer.
  bool is_starting_until(Time end);
  bool is_over_by(Time end);

  // -- clients

  /// Returns the ticket that finish() will complete; 0 if the request has no effect.
  std::uint64_t ask(StopRequest request);
  /// Is the stop with this ticket in progress? Waits as is_starting_until().
  bool is_stopping_until(std::uint64_t ticket, Time end);

  struct Outcome {
    std::optional<StopAnswer> answer;               // nullopt: no stop was carried out
    StopRequest stop;                               // the request that led to it
    std::shared_ptr<const stage::Receipt> receipt;  // of the last export; may be null
  };

  Outcome outcome() const;

  /// The figures of status and of the status file, at one moment.
  struct Shown {
    State state = State::planning;
    std::optional<std::string> error;    // of the last outcome
    std::optional<std::string> unsaved;  // in the state `unsaved`: the text about the results
  };

  Shown shown() const;

  // -- the thread that carries a stop out

  /// In a successor of a worker that was exporting: when the export starts without a client's
  /// request.
  void go_on_alone_at(Time time);

  struct Reason {
    StopRequest request;
    bool was_unsaved = false;  // the instance is unmounted already
    bool alone = false;        // by go_on_alone_at()
  };

  /// Waits for a reason to stop. Without a client's request, the request is the usual one.
  Reason await_stop();
  /// Gives a stop without a client's request the deadline of the job file, unless a client has
  /// requested a stop meanwhile.
  void begin_deadline(StopRequest& request);
  /// The latest request of the clients, or nullopt.
  std::optional<StopRequest> latest() const;
  /// `request` or a later one.
  StopRequest last_of(const StopRequest& request) const;
  /// Is a stop requested until `end`?
  bool is_asked_by(Time end);
  /// Waits until `end`, a new request or the end of the session. Returns true after the latter.
  bool is_unmounted_by(Time end);
  /// The stop waits without a deadline, unless a client has requested another.
  void drop_last_resort();
  /// Starts the last resort anew. The previous one may have expired without effect while programs
  /// used the mount.
  void renew_last_resort(const StopRequest& request);
  /// The request with the deadline is complete. A later request that continues it gets the full
  /// time of the job file.
  void drop_inherited_deadline();

  struct Begun {
    StopRequest request;
    std::optional<Step> step;  // nullopt: there is no export, and the state stays
  };

  /// The mount is gone. Returns the latest request. If it exports, enters the state staging_out:
  /// later requests find this state and shorten the export.
  Begun begin_to_end(const StopRequest& request);
  /// The export is cancelled from its begin if its time is up or another stop drops the results.
  void begin_export(const StopRequest& request);
  bool is_to_be_kept(const StopRequest& request) const;
  /// Returns the text for a stop whose results another stop drops; "" if there is no such stop.
  std::string told_overruled() const;
  void set_receipt(std::shared_ptr<const stage::Receipt> receipt);
  std::shared_ptr<const stage::Receipt> receipt() const;
  /// Completes the request and all before it.
  void finish(const StopRequest& request, StopAnswer answer);

  // -- a thread that ends the process because a call to the PFS hangs

  /// Returns true if the caller has to end the process: see Deadline::claim_exit().
  [[nodiscard]] bool must_leave();
  [[nodiscard]] bool must_give_up();
  /// Completes all requests.
  void finish_all(const StopRequest& request, StopAnswer answer);

 private:
  void hurry_export(StopRequest& request) EFS_REQUIRES(mutex_);
  void inherit_options(StopRequest& request) const EFS_REQUIRES(mutex_);
  void set_usual_deadline(StopRequest& request) const EFS_REQUIRES(mutex_);
  bool is_overruled() const EFS_REQUIRES(mutex_);

  const Options options_;
  Deadline& deadline_;
  stage::Progress& progress_;

  mutable Mutex mutex_;  // rank 5; under it only the Deadline is called
  Condition changed_;
  JobStateMachine state_ EFS_GUARDED_BY(mutex_);
  bool unmounted_ EFS_GUARDED_BY(mutex_) = false;
  std::optional<StopRequest> request_ EFS_GUARDED_BY(mutex_);  // to be carried out
  // tickets: the last issued, the last completed
  std::uint64_t asked_ EFS_GUARDED_BY(mutex_) = 0, done_ EFS_GUARDED_BY(mutex_) = 0;
  std::optional<Time> goes_on_alone_at_ EFS_GUARDED_BY(mutex_);
  Outcome outcome_ EFS_GUARDED_BY(mutex_);
};

/// The facts about the end of an instance that decide whether a request was fulfilled.
struct EndOfStore {
  std::string name;            // of the job
  bool kept = false;           // the store stays
  bool always_merges = false;  // an export merges in any case
};

/// Only one of several stops is carried out. Returns an error if `done`, the one carried out,
/// differs from `wanted`, the request of another client, to the loss of that client.
Status was_done_as(const StopRequest& wanted, const StopRequest& done, const EndOfStore& end);

}  // namespace efs::daemon
