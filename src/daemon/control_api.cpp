// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/control_api.hpp"

#include "daemon/requests.hpp"
#include "stage/export/receipt.hpp"

namespace efs::daemon {

using control::Json;
using Clock = std::chrono::steady_clock;
namespace replies = control::replies;
namespace requests = control::requests;

ControlApi::ControlApi(Parts parts)
    : its_(parts),
      files_({.config = parts.facts.config,
              .tasks = parts.tasks,
              .buffer = parts.buffer,
              .transfers = parts.transfers,
              .fetches = parts.fetches,
              .mount = parts.mount,
              .status = parts.status}) {}

Json ControlApi::handle(const Json& request, const control::Server::Progress& progress) {
  const auto verb = requests::verb_of(request);
  if (verb == requests::Status::verb) {
    return to_json(its_.status.status(requests::from_json<requests::Status>(request).changed));
  }
  if (verb == requests::Wait::verb) {
    return wait(requests::from_json<requests::Wait>(request).starter, progress);
  }
  if (verb == requests::Stop::verb) {
    return stop(requests::from_json<requests::Stop>(request), progress);
  }
  if (verb == requests::WaitEnd::verb) {
    return wait_end(requests::from_json<requests::WaitEnd>(request), progress);
  }
  // A client need not know that a worker died: its request waits for the successor.
  its_.stops.await_recovery();
  return files_.handle(verb, request, progress);
}

// Waits until the inputs are imported or the start has failed. `starter`: the start is cancelled if
// this client disappears.
Json ControlApi::wait(bool starter, const control::Server::Progress& progress) {
  while (its_.stops.is_starting_until(Clock::now() + progress_interval)) {
    if (!progress(to_json(its_.status.progress()))) {
      // the starter of this instance was interrupted (ctrl-c) or killed: cancel the start
      if (starter) {
        give_up_start();
      }
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
  return its_.stops.state() == State::failed
             ? to_json(its_.start.tell().value_or(replies::Failure{}))
             : to_json(its_.status.status(false));
}

// Has no effect once the file system is mounted, because programs may use it. The starter may have
// been only slow or stopped.
void ControlApi::give_up_start() {
  const bool cancelled =
      !its_.facts.is_successor() &&
      request_stop(
          {.stage_out = false, .keep = its_.buffer.is_kept(), .start_only = true, .times = {}}) !=
          0;
  if (cancelled) {
    its_.start.note_starter_gone();
  }
}

std::uint64_t ControlApi::request_stop(StopRequest request) {
  // This also cancels the unloads that an earlier stop waits for. The export completes their work
  // in time.
  if ((request.times.until || !request.stage_out) && !request.start_only) {
    its_.tasks.cancel_all();
  }
  return its_.stops.ask(request);
}

Json ControlApi::stop(const requests::Stop& asked, const control::Server::Progress& progress) {
  if (asked.supervisor != 0 &&
      asked.supervisor != static_cast<std::uint64_t>(its_.facts.supervisor)) {
    return control::error_line({ESRCH, "the instance has ended; another instance named " +
                                           its_.facts.config.name + " runs, and is left alone"});
  }
  StopRequest wanted{.stage_out = asked.stage_out,
                     .keep = asked.keep,
                     .times = {},
                     .cut_off = asked.cut_off,
                     .merge = asked.merge,
                     .asked_ago = asked_ago_of(asked)};
  if (asked.deadline > 0) {
    wanted.times = StopTimes::within(asked.deadline, Clock::now());
  }
  const std::uint64_t ticket = request_stop(wanted);
  // the stop continues even if the client disappears
  while (its_.stops.is_stopping_until(ticket, Clock::now() + progress_interval)) {
    (void)progress(to_json(its_.status.progress()));
  }
  return outcome_for(wanted, asked.receipt);
}

// Waits for the end of the instance by any cause, perhaps as long as the job runs. Checks only once
// a minute whether the client is gone, so that the node of the job stays idle. The answer is short,
// because the client may read it late: the file of the receipt has the rest.
Json ControlApi::wait_end(const requests::WaitEnd& request,
                          const control::Server::Progress& progress) {
  if (progress.holds_up_others()) {
    return control::error_line({EAGAIN, "the daemon has no thread to wait"});
  }
  while (!its_.stops.is_over_by(Clock::now() + std::chrono::minutes(1))) {
    if (!progress(Json::object())) {
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
  return outcome_for({.keep = request.keep, .times = {}}, false);
}

// The instance failed, or a successor found it ended.
Json ControlApi::answer_without_outcome(const StopRequest& wanted) {
  const State state = its_.stops.state();
  const auto failure = its_.start.tell();
  const bool successor = its_.facts.is_successor();
  if (const char* const refusal = refusal_of_stop(state, successor)) {
    return control::error_line({ECANCELED, successor ? refusal + (failure ? failure->error : "") +
                                                           ". See what is left: efs status " +
                                                           its_.facts.config.name
                                                     : refusal});
  }
  const Status done = wanted.keep ? was_done_as(wanted, {}) : Status();
  return done ? to_json(replies::Stopped{}) : control::error_line(done.error());
}

Json ControlApi::outcome_for(const StopRequest& wanted, bool with_receipt) {
  auto [answer, done, receipt] = its_.stops.outcome();
  if (!answer) {
    return answer_without_outcome(wanted);
  }
  if (std::holds_alternative<NoMemory>(*answer)) {
    return control::error_line({ENOMEM, "the stop failed: out of memory"});
  }
  const auto* const stopped = std::get_if<replies::Stopped>(&*answer);
  const bool good = stopped != nullptr && stopped->exit.value_or(0) == 0;
  if (const Status fulfilled = good ? was_done_as(wanted, done) : Status(); !fulfilled) {
    // only a stop that ends the instance succeeds: the client can wait for its end
    return to_json(replies::StopFailed{
        .failure = replies::failure_of(fulfilled.error()), .summary = {}, .ended = true});
  }
  Json line =
      stopped != nullptr ? to_json(*stopped) : to_json(std::get<replies::StopFailed>(*answer));
  // the receipt of many files takes megabytes
  if (receipt && with_receipt) {
    replies::add_receipt(line, stage::to_json(*receipt));
  }
  return line;
}

Status ControlApi::was_done_as(const StopRequest& wanted, const StopRequest& done) const {
  const auto& config = its_.facts.config;
  return daemon::was_done_as(
      wanted, done,
      {.name = config.name,
       .kept = its_.buffer.is_kept(),
       .always_merges = config.nodes > 1 || config.merge_since != 0 || config.merges});
}

}  // namespace efs::daemon
