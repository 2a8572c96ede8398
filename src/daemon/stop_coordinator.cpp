// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/stop_coordinator.hpp"

#include <algorithm>
#include <utility>

namespace efs::daemon {
namespace {

// The time to complete current writes and to remove partial files.
constexpr auto patience_with_dropped = std::chrono::seconds(20);

std::optional<std::string> error_in(const StopAnswer& answer) {
  if (const auto* const failed = std::get_if<control::replies::StopFailed>(&answer)) {
    return failed->failure.error;
  }
  const auto* const stopped = std::get_if<control::replies::Stopped>(&answer);
  return stopped != nullptr ? stopped->error : std::nullopt;
}

std::optional<std::string> summary_in(const StopAnswer& answer) {
  if (const auto* const failed = std::get_if<control::replies::StopFailed>(&answer)) {
    return failed->summary;
  }
  const auto* const stopped = std::get_if<control::replies::Stopped>(&answer);
  return stopped != nullptr ? stopped->summary : std::nullopt;
}

}  // namespace

StopCoordinator::StopCoordinator(Options options, Deadline& deadline, stage::Progress& progress)
    : options_(options), deadline_(deadline), progress_(progress), state_(options.successor) {}

State StopCoordinator::state() const {
  const MutexLock lock(mutex_);
  return state_.state();
}

Step StopCoordinator::enter(Event event) {
  const MutexLock lock(mutex_);
  const Step step = state_.handle(event);
  changed_.notify_all();
  return step;
}

void StopCoordinator::note_unmounted() {
  const MutexLock lock(mutex_);
  unmounted_ = true;
  changed_.notify_all();
}

bool StopCoordinator::is_unmounted() const {
  const MutexLock lock(mutex_);
  return unmounted_;
}

void StopCoordinator::await_recovery() {
  const MutexLock lock(mutex_);
  while (state_.state() == State::recovering) {
    changed_.wait(mutex_);
  }
}

bool StopCoordinator::is_starting_until(Time end) {
  const MutexLock lock(mutex_);
  if (!state_.starts()) {
    return false;
  }
  changed_.wait_until(mutex_, end);
  return state_.starts();
}

bool StopCoordinator::is_over_by(Time end) {
  const MutexLock lock(mutex_);
  while (!state_.is_over() && changed_.wait_until(mutex_, end)) {
  }
  return state_.is_over();
}

std::uint64_t StopCoordinator::ask(StopRequest request) {
  std::unique_ptr<Alarm> before, start_before;  // destroyed without the lock
  const MutexLock lock(mutex_);
  const StopEffect effect = effect_of_stop(state_.state(), request.start_only);
  if (effect == StopEffect::ignore) {
    return 0;
  }
  if (effect == StopEffect::cancel_start) {
    progress_.cancel = true;
    start_before = deadline_.limit_start(request.times.gone_by);
  }
  if (effect == StopEffect::shorten) {
    hurry_export(request);
  }
  inherit_options(request);
  if (!request.times.until) {
    set_usual_deadline(request);
  }
  if (request.times.gone_by) {
    before = deadline_.set_last_resort(request.times.gone_by);
  }
  request.ticket = ++asked_;
  request_ = request;
  changed_.notify_all();
  return request.ticket;
}

void StopCoordinator::hurry_export(StopRequest& request) {
  // A running export without a deadline gets the deadline of this request. Then this request
  // continues.
  if (request.times.until) {
    deadline_.hurry(*request.times.until);
  }
  // A stop that drops the rest waits neither for the export nor for a hanging PFS.
  if (!request.stage_out) {
    progress_.cancel = true;
    request.times.gone_by = deadline_.now() + patience_with_dropped;
  }
}

// A signal or another client's stop does not revoke the options of an earlier request.
void StopCoordinator::inherit_options(StopRequest& request) const {
  if (!request_ || !request_->stage_out || !request.stage_out) {
    return;
  }
  const StopRequest& earlier = *request_;
  request.keep = request.keep || earlier.keep;
  request.cut_off = request.cut_off || earlier.cut_off;
  request.merge = request.merge || earlier.merge;
  request.inherits = !request.times.until && earlier.times.until;
  if (request.inherits) {
    request.times = earlier.times;
  }
}

// Sets the deadline of the job file. If a predecessor received the request, sets the remaining
// time.
void StopCoordinator::set_usual_deadline(StopRequest& request) const {
  constexpr double hardly_any = 0.001;  // seconds
  if (request.stage_out && options_.usual_deadline != 0) {
    request.times = StopTimes::within(
        std::max(hardly_any, options_.usual_deadline - request.asked_ago), deadline_.now());
  }
}

bool StopCoordinator::is_stopping_until(std::uint64_t ticket, Time end) {
  const MutexLock lock(mutex_);
  const auto stopping = [&]() EFS_REQUIRES(mutex_) {
    return done_ < ticket && !state_.is_over();
  };
  if (!stopping()) {
    return false;
  }
  changed_.wait_until(mutex_, end);
  return stopping();
}

StopCoordinator::Outcome StopCoordinator::outcome() const {
  const MutexLock lock(mutex_);
  return outcome_;
}

StopCoordinator::Shown StopCoordinator::shown() const {
  const MutexLock lock(mutex_);
  Shown shown{.state = state_.state(), .error = {}, .unsaved = {}};
  if (outcome_.answer) {
    shown.error = error_in(*outcome_.answer);
  }
  if (outcome_.answer && shown.state == State::unsaved) {
    shown.unsaved = summary_in(*outcome_.answer);
  }
  return shown;
}

void StopCoordinator::go_on_alone_at(Time time) {
  const MutexLock lock(mutex_);
  goes_on_alone_at_ = time;
}

// An unmount from outside (umount, fusermount3 -u) means: export and end. So does a signal. If the
// worker then dies, no client repeats the request.
StopCoordinator::Reason StopCoordinator::await_stop() {
  deadline_.begin_stop();
  const MutexLock lock(mutex_);
  Reason reason{.request = {}, .was_unsaved = state_.state() == State::unsaved};
  while (!request_ && (!unmounted_ || reason.was_unsaved)) {
    if (!goes_on_alone_at_) {
      changed_.wait(mutex_);
    } else if (!changed_.wait_until(mutex_, *goes_on_alone_at_) && !request_) {
      break;
    }
  }
  reason.alone = goes_on_alone_at_ && !request_;
  goes_on_alone_at_.reset();
  if (request_) {
    reason.request = *request_;
  }
  return reason;
}

void StopCoordinator::begin_deadline(StopRequest& request) {
  std::unique_ptr<Alarm> before;
  const MutexLock lock(mutex_);
  if (request_) {
    return;  // the request has its own deadline
  }
  set_usual_deadline(request);
  before = deadline_.set_last_resort(request.times.gone_by);
}

std::optional<StopRequest> StopCoordinator::latest() const {
  const MutexLock lock(mutex_);
  return request_;
}

StopRequest StopCoordinator::last_of(const StopRequest& request) const {
  const MutexLock lock(mutex_);
  return request_ && request_->ticket > request.ticket ? *request_ : request;
}

bool StopCoordinator::is_asked_by(Time end) {
  const MutexLock lock(mutex_);
  while (!request_ && changed_.wait_until(mutex_, end)) {
  }
  return request_.has_value();
}

bool StopCoordinator::is_unmounted_by(Time end) {
  const MutexLock lock(mutex_);
  if (!unmounted_) {
    changed_.wait_until(mutex_, end);
  }
  return unmounted_;
}

void StopCoordinator::drop_last_resort() {
  std::unique_ptr<Alarm> before;
  const MutexLock lock(mutex_);
  if (!request_) {
    before = deadline_.set_last_resort({});
  }
}

void StopCoordinator::renew_last_resort(const StopRequest& request) {
  std::unique_ptr<Alarm> before;
  const MutexLock lock(mutex_);  // a later request must not set its own in between
  const StopRequest& last = request_ && request_->ticket > request.ticket ? *request_ : request;
  if (last.times.gone_by) {
    before = deadline_.set_last_resort(std::max(*last.times.gone_by, deadline_.now()));
  }
}

void StopCoordinator::drop_inherited_deadline() {
  std::unique_ptr<Alarm> before;
  const MutexLock lock(mutex_);
  if (!request_ || !request_->inherits) {
    return;
  }
  request_->times = {};
  request_->inherits = false;
  set_usual_deadline(*request_);
  before = deadline_.set_last_resort(request_->times.gone_by);
}

StopCoordinator::Begun StopCoordinator::begin_to_end(const StopRequest& request) {
  const MutexLock lock(mutex_);
  Begun begun{.request = request, .step = {}};
  if (request_ && request_->ticket > request.ticket) {
    begun.request = *request_;
  }
  if (begun.request.stage_out) {
    begun.step = state_.handle(Event::export_begun);
    changed_.notify_all();
  }
  return begun;
}

void StopCoordinator::begin_export(const StopRequest& request) {
  const MutexLock lock(mutex_);
  progress_.time_is_up = request.times.until && *request.times.until <= deadline_.now();
  progress_.cancel = progress_.time_is_up || is_overruled();
}

// Another client may have requested this during the export.
bool StopCoordinator::is_to_be_kept(const StopRequest& request) const {
  const MutexLock lock(mutex_);
  return request.keep || (request_ && request_->keep);
}

// Another client's stop drops the results that are not exported.
bool StopCoordinator::is_overruled() const {
  return request_ && !request_->stage_out;
}

std::string StopCoordinator::told_overruled() const {
  const MutexLock lock(mutex_);
  if (!is_overruled()) {
    return "";
  }
  return std::string("overruled by another stop --no-stage-out: the other results are ") +
         (request_->keep ? "kept" : "dropped");
}

void StopCoordinator::set_receipt(std::shared_ptr<const stage::Receipt> receipt) {
  const MutexLock lock(mutex_);
  outcome_.receipt.swap(receipt);
}

std::shared_ptr<const stage::Receipt> StopCoordinator::receipt() const {
  const MutexLock lock(mutex_);
  return outcome_.receipt;
}

void StopCoordinator::finish(const StopRequest& request, StopAnswer answer) {
  deadline_.claim_end();
  std::unique_ptr<Alarm> over;
  const MutexLock lock(mutex_);
  outcome_.answer = std::move(answer);
  outcome_.stop = request;
  if (request_ && request_->ticket == request.ticket) {
    request_.reset();
  }
  done_ = std::max(done_, request.ticket);
  deadline_.unhurry();
  if (!request_) {
    over = deadline_.set_last_resort({});
  }
  changed_.notify_all();
}

// A stop without a deadline may take any time.
bool StopCoordinator::must_leave() {
  const MutexLock lock(mutex_);
  const bool has_time = request_ && request_->stage_out && !request_->times.gone_by;
  return !has_time && state_.may_leave(unmounted_) && deadline_.claim_exit();
}

bool StopCoordinator::must_give_up() {
  const MutexLock lock(mutex_);
  return state_.may_give_up() && deadline_.claim_exit();
}

void StopCoordinator::finish_all(const StopRequest& request, StopAnswer answer) {
  const MutexLock lock(mutex_);
  outcome_.answer = std::move(answer);
  outcome_.stop = request;
  done_ = asked_;
  changed_.notify_all();
}

Status was_done_as(const StopRequest& wanted, const StopRequest& done, const EndOfStore& end) {
  if (wanted.stage_out && !done.stage_out) {
    return fail(ECANCELED, end.kept ? "overruled by another stop --no-stage-out: not all results "
                                      "are exported. Export them: efs salvage " +
                                          end.name
                                    : "overruled by another stop --no-stage-out: the other "
                                      "results are dropped");
  }
  if (wanted.merge && wanted.stage_out && !done.merge && !end.always_merges) {
    return fail(
        ECANCELED,
        "overruled by another stop without --merge: results of another run may be replaced");
  }
  if (wanted.keep && !end.kept) {
    return fail(ECANCELED, "overruled by another stop without --keep: the buffer was removed");
  }
  return {};
}

}  // namespace efs::daemon
