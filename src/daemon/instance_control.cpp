// SPDX-License-Identifier: BSD-3-Clause
// The control verbs of an instance: status, wait, stop.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ranges>

#include "backends/virtual_device.hpp"
#include "base/boot.hpp"
#include "base/clock.hpp"
#include "daemon/instance.hpp"
#include "daemon/requests.hpp"
#include "stage/export/selection.hpp"

namespace efs::daemon {
namespace {

using control::Json;
namespace requests = control::requests;

Json to_json(const SlotClient::Shown& turn) {
  static constexpr std::array standings{"waiting", "holds", "none"};
  Json line{{"direction", queue::name_of(turn.direction)},
            {"standing", standings.at(static_cast<std::size_t>(turn.standing))},
            {"ahead", turn.ahead},
            {"since", static_cast<double>(turn.since) / 1e9}};
  if (turn.wait >= 0) {
    line["wait_seconds"] = turn.wait;
  }
  if (!turn.reason.empty()) {
    line["reason"] = turn.reason;
  }
  return line;
}

// Returns the remaining time at the current rate; null: unknown.
Json seconds_left(const stage::ProgressSnapshot& p) {
  constexpr double soonest = 2;  // seconds: the first rates predict little
  const double seconds = p.started > 0 ? static_cast<double>(wall_clock() - p.started) / 1e9 : 0;
  const auto done = static_cast<double>(p.bytes_done), total = static_cast<double>(p.bytes_total);
  return done > 0 && seconds >= soonest ? Json(std::max(0.0, (total - done) * seconds / done))
                                        : Json();
}

// The answer contains only the first ones; the receipt lists all.
Json first_of(const std::vector<stage::PlanSkip>& skipped) {
  constexpr std::size_t most = 100;
  Json all = Json::array();
  for (const auto& skip : skipped | std::views::take(most)) {
    all.push_back({{"path", skip.path}, {"reason", skip.reason}, {"vanished", skip.vanished}});
  }
  return all;
}

}  // namespace

Json Instance::handle(const Json& request, const control::Server::Progress& progress) {
  const auto verb = requests::verb_of(request);
  if (verb == requests::Status::verb) {
    Json status = status_now();
    if (requests::from_json<requests::Status>(request).changed) {
      add_changed(status);
    }
    return control::result_line(status);
  }
  if (verb == requests::Wait::verb) {
    return handle_wait(requests::from_json<requests::Wait>(request).starter, progress);
  }
  if (verb == requests::Stop::verb) {
    return handle_stop(requests::from_json<requests::Stop>(request), progress);
  }
  if (verb == requests::WaitEnd::verb) {
    return handle_wait_end(requests::from_json<requests::WaitEnd>(request), progress);
  }
  // A client need not know that a worker died: its request waits for the successor.
  stops_.await_recovery();
  return handle_files(verb, request, progress);
}

// Waits until the inputs are imported or the start has failed. `starter`: the start is cancelled if
// this client disappears.
Json Instance::handle_wait(bool starter, const control::Server::Progress& progress) {
  while (is_starting()) {
    if (!progress(progress_now())) {
      // the starter of this instance was interrupted (ctrl-c) or killed: cancel the start
      if (starter) {
        give_up_start();
      }
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
  if (stops_.state() == State::failed) {
    MutexLock lock(mutex_);
    failure_told_ = true;
    changed_.notify_all();
    return start_failure_;
  }
  return control::result_line(status_now());
}

// Has no effect once the file system is mounted, because programs may use it. The starter may have
// been only slow or stopped.
void Instance::give_up_start() {
  const bool cancelled =
      options_.takeovers == 0 &&
      request_stop({.stage_out = false, .keep = keep_image_, .start_only = true, .times = {}}) != 0;
  if (cancelled) {
    MutexLock lock(mutex_);
    starter_is_gone_ = true;
    changed_.notify_all();
  }
}

// Waits for a change, at most until the next progress line is due.
bool Instance::is_starting() {
  return stops_.is_starting_until(Clock::now() + progress_interval);
}

Json Instance::handle_stop(const requests::Stop& asked, const control::Server::Progress& progress) {
  if (asked.supervisor != 0 &&
      asked.supervisor != static_cast<std::uint64_t>(options_.supervisor)) {
    return control::error_line({ESRCH, "the instance has ended; another instance named " +
                                           options_.config.name + " runs, and is left alone"});
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
  while (is_stopping(ticket)) {
    (void)progress(progress_now());
  }
  return outcome_for(wanted, asked.receipt);
}

// Waits for the end of the instance by any cause, perhaps as long as the job runs. Checks only once
// a minute whether the client is gone, so that the node of the job stays idle. The answer is short,
// because the client may read it late: the file of the receipt has the rest.
Json Instance::handle_wait_end(const requests::WaitEnd& request,
                               const control::Server::Progress& progress) {
  if (progress.holds_up_others()) {
    return control::error_line({EAGAIN, "the daemon has no thread to wait"});
  }
  while (!stops_.is_over_by(Clock::now() + std::chrono::minutes(1))) {
    if (!progress(Json::object())) {
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
  return outcome_for({.keep = request.keep, .times = {}}, false);
}

// The answer to a client that requested `wanted`, if the instance failed, or if a successor found
// it ended.
Json Instance::answer_without_outcome(const StopRequest& wanted) {
  const State state = stops_.state();
  MutexLock lock(mutex_);
  failure_told_ = true;
  changed_.notify_all();
  const bool successor = options_.takeovers > 0;
  if (const char* const refusal = refusal_of_stop(state, successor)) {
    return control::error_line({ECANCELED, successor ? refusal + start_failure_.value("error", "") +
                                                           ". See what is left: efs status " +
                                                           options_.config.name
                                                     : refusal});
  }
  const Status done = wanted.keep ? was_done_as(wanted, {}) : Status();
  return done ? control::result_line() : control::error_line(done.error());
}

// Returns the answer to a client that requested `wanted`.
Json Instance::outcome_for(const StopRequest& wanted, bool with_receipt) {
  auto [outcome, done, receipt] = stops_.outcome();
  if (outcome.is_null()) {
    return answer_without_outcome(wanted);
  }
  const bool good =
      outcome.is_object() && outcome.value("ok", false) && outcome.value("exit", 0) == 0;
  if (const Status fulfilled = good ? was_done_as(wanted, done) : Status(); !fulfilled) {
    Json line = control::error_line(fulfilled.error());
    // only a stop that ends the instance succeeds: the client can wait for its end
    line["ended"] = true;
    return line;
  }
  if (!outcome.is_object()) {
    return control::error_line({ENOMEM, "the stop failed: out of memory"});
  }
  // the receipt of many files takes megabytes
  if (receipt && with_receipt) {
    outcome["receipt"] = stage::to_json(*receipt);
  }
  return outcome;
}

Status Instance::was_done_as(const StopRequest& wanted, const StopRequest& done) const {
  const auto& config = options_.config;
  return daemon::was_done_as(
      wanted, done,
      {.name = config.name,
       .kept = keep_image_,
       .always_merges = config.nodes > 1 || config.merge_since != 0 || config.merges});
}

// Is the stop with this ticket still running? Waits like is_starting().
bool Instance::is_stopping(std::uint64_t ticket) {
  return stops_.is_stopping_until(ticket, Clock::now() + progress_interval);
}

Json Instance::progress_now() {
  const stage::ProgressSnapshot p = progress_.snapshot();
  const auto turn_in = turns_.view(queue::Direction::in),
             turn_out = turns_.view(queue::Direction::out);
  const State state = stops_.state();
  Json line{{"state", name_of(state)},      {"bytes_done", p.bytes_done},
            {"bytes_total", p.bytes_total}, {"files_done", p.files_done},
            {"files_total", p.files_total}, {"started", static_cast<double>(p.started) / 1e9}};
  if (state == State::unmounting) {
    MutexLock lock(mutex_);
    if (waits_for_ != nullptr) {
      line["note"] = waits_for_;
    }
  }
  // While programs run, turns belong to tasks.
  const auto& turn = state == State::staging_in ? turn_in : turn_out;
  const bool moving = traits_of(state).transfers;
  if (turn && moving) {
    line["turn"] = to_json(*turn);
  }
  if (moving && !(turn && turn->standing == queue::Standing::waiting)) {
    if (Json left = seconds_left(p); !left.is_null()) {
      line["eta_seconds"] = std::move(left);
    }
  }
  return line;
}

void Instance::tell_turn(Json& task) const {
  if (task.value("task_state", "") != name_of(TaskState::running)) {
    return;
  }
  if (const auto turn =
          turns_.view(task.value("kind", "") == name_of(TaskKind::load) ? queue::Direction::in
                                                                        : queue::Direction::out)) {
    task["turn"] = to_json(*turn);
  }
}

// Returns the document for schedulers; efsd(8) describes it. Bytes and files are those of the
// current or last import or export.
Json Instance::status_file_now() {
  const stage::ProgressSnapshot p = progress_.snapshot();
  const auto& config = options_.config;
  Json json{{"version", 1},
            {"name", config.name},
            {"job_file", config.source},
            {"mount", config.mount_dir},
            {"supervisor_pid", options_.supervisor},
            {"worker_pid", ::getpid()},
            {"since",
             std::chrono::duration_cast<std::chrono::seconds>(started_.time_since_epoch()).count()},
            {"bytes_done", p.bytes_done},
            {"bytes_total", p.bytes_total},
            {"files_done", p.files_done},
            {"files_total", p.files_total}};
  const auto [state, error, unsaved] = stops_.shown();
  json["state"] = name_of(state);
  {
    MutexLock lock(mutex_);
    const bool failed = state == State::failed && start_failure_.contains("error");
    json["error"] = failed ? start_failure_["error"] : !error.is_null() ? error : unsaved;
  }
  const bool moving = traits_of(state).transfers;
  const auto done = static_cast<double>(p.bytes_done), total = static_cast<double>(p.bytes_total);
  json["progress"] = !moving ? Json() : total > 0 ? Json(done / total) : Json(0.0);
  json["eta_seconds"] = moving ? seconds_left(p) : Json();
  return json;
}

void Instance::add_changed(Json& status) {
  constexpr auto longest = std::chrono::milliseconds(100);
  if (status.value("state", "") != name_of(State::running)) {
    return;
  }
  const ReadLock using_files(files_in_use_);
  if (!ready_ || !filesystem_) {
    return;
  }
  const auto end = std::chrono::steady_clock::now() + longest;
  const auto items =
      fs::Staging(*filesystem_).walk({}, [end] { return std::chrono::steady_clock::now() >= end; });
  if (!items) {
    return;
  }
  std::uint64_t bytes = 0;
  const auto selection = stage::select_outgoing(options_.config, *items);
  for (const auto* item : selection.outgoing) {
    bytes += S_ISREG(item->attributes.st_mode)
                 ? static_cast<std::uint64_t>(item->attributes.st_size)
                 : 0;
  }
  status["changed_files"] = selection.outgoing.size();
  status["changed_bytes"] = bytes;
}

void Instance::add_identity(Json& status) const {
  const auto& config = options_.config;
  status["name"] = config.name;
  status["job_file"] = config.source;
  status["start_options"] = config.start_options;
  status["mount"] = config.mount_dir;
  status["root_dir"] = config.root_dir;
  status["results_dir"] = config.results_dir;
  status["directory"] = options_.directory;
  status["log"] = config.log_file.empty() ? options_.directory + "/efsd.log" : config.log_file;
  status["supervisor_pid"] = options_.supervisor;
  status["worker_pid"] = ::getpid();
  status["takeovers"] = options_.takeovers;
  status["protocol"] = control::protocol_version;
  status["since"] =
      std::chrono::duration_cast<std::chrono::seconds>(started_.time_since_epoch()).count();
}

void Instance::add_backends(Json& status) const {
  const auto& config = options_.config;
  for (unsigned place = 0; store_.backend->places() > 1 && place < store_.backend->places();
       ++place) {
    Backend& one = store_.backend->at(place);
    const Space its = one.space();
    status["backends"].push_back(
        {{"id", config.backends.at(place).id},
         {"description", one.description()},
         {"capacity", its.capacity},
         {"used", its.used},
         {"available", its.available},
         {"durability", name_of(one.durability())},
         {"journal", place == 0},
         {"new_files", place == config.new_files},
         {"io", session_->passthrough() && !refusals_.contains(place) ? "passthrough" : "daemon"}});
  }
}

std::string Instance::why_daemon_io() const {
  if (!options_.config.trace.empty()) {
    return "traced: all I/O is served by the daemon";
  }
  if (limits_.any()) {
    return "limited (limit-read, limit-write or limit-ops)";
  }
  if (options_.daemon_io) {
    return "requested (-o daemon-io)";
  }
  if (options_.writeback) {
    return "requested (-o writeback)";
  }
  if (!options_.privileged) {
    return "not started by root";
  }
  if (!store_.backend->offers_descriptor()) {
    return "the daemon counts the capacity";
  }
  return !refusals_.empty() ? refusals_.begin()->second
                            : "the kernel or libfuse offers no passthrough";
}

void Instance::add_store(Json& status) const {
  const Space space = store_.backend->space();
  status["backend"] = store_.backend->description();
  status["capacity"] = space.capacity;
  status["used"] = space.used;
  status["available"] = space.available;
  status["durability"] = name_of(weakest_durability(*store_.backend));
  add_backends(status);
  const bool passthrough = session_->passthrough();
  status["io"] = passthrough ? "passthrough" : "daemon";
  if (!passthrough) {
    status["io_reason"] = why_daemon_io();
  }
  status["writeback"] = session_->writeback();
  status["takeover"] = can_be_replaced_.load();
  const std::string no_takeover = no_takeover_reason(kernel_release());
  if (!can_be_replaced_) {
    status["takeover_reason"] = no_takeover.empty()
                                    ? "the kernel does not resend requests (FUSE_NOTIFY_RESEND)"
                                    : no_takeover;
  }
  status["read_only"] = filesystem_->failed();
  if (limits_.any()) {
    status["limits"] = limits_.shown();
  }
  status["counters"] = figures_of(session_->counters());
  status["open_files"] = figures_of(filesystem_->open_files());
  status["intercept"] = figures_of(session_->door());
}

Json Instance::status_now() {
  Json status = progress_now();
  add_identity(status);
  status["tasks"] = tasks_->list();
  for (auto& task : status["tasks"]) {
    tell_turn(task);
  }
  if (Json unsaved = stops_.shown().unsaved; !unsaved.is_null()) {
    status["error"] = std::move(unsaved);
  }
  MutexLock lock(mutex_);
  if (starter_is_gone_) {
    status["given_up"] = true;
  }
  if (const auto& in = staged_in_) {
    status["staged_in"] = {{"files", in->files},
                           {"bytes", in->bytes},
                           {"bytes_read", in->bytes - in->bytes_reused},
                           {"files_reused", in->files_reused},
                           {"bytes_reused", in->bytes_reused},
                           {"files_away", in->files_away},
                           {"skipped", in->skipped.size()},
                           {"skipped_first", first_of(in->skipped)}};
  }
  if (!lost_.empty()) {
    status["lost_before"] = lost_;
  }
  if (watchers_) {
    status.update(watchers_->figures());
  }
  if (!ready_ || !store_.backend) {
    return status;
  }
  add_store(status);
  return status;
}

}  // namespace efs::daemon
