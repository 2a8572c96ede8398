// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_status.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "fs/staging.hpp"
#include "stage/export/selection.hpp"

namespace efs::daemon {
namespace {

using control::Json;
namespace replies = control::replies;

replies::Turn turn_of(const SlotClient::Shown& shown) {
  static constexpr std::array standings{"waiting", "holds", "none"};
  replies::Turn turn{.direction = queue::name_of(shown.direction),
                     .standing = standings.at(static_cast<std::size_t>(shown.standing)),
                     .ahead = shown.ahead,
                     .since = static_cast<double>(shown.since) / 1e9,
                     .wait_seconds = {},
                     .reason = {}};
  if (shown.wait >= 0) {
    turn.wait_seconds = shown.wait;
  }
  if (!shown.reason.empty()) {
    turn.reason = shown.reason;
  }
  return turn;
}

// Returns the remaining time at the current rate; nullopt: unknown.
std::optional<double> seconds_left(const stage::ProgressSnapshot& p) {
  constexpr double soonest = 2;  // seconds: the first rates predict little
  const double seconds = p.started > 0 ? static_cast<double>(wall_clock() - p.started) / 1e9 : 0;
  const auto done = static_cast<double>(p.bytes_done), total = static_cast<double>(p.bytes_total);
  return done > 0 && seconds >= soonest
             ? std::optional(std::max(0.0, (total - done) * seconds / done))
             : std::nullopt;
}

// A text or a number; null: there is none.
template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

std::int64_t since(const JobFacts& facts) {
  return std::chrono::duration_cast<std::chrono::seconds>(facts.started.time_since_epoch()).count();
}

}  // namespace

replies::Progress JobStatus::progress() const {
  const stage::ProgressSnapshot p = its_.progress.snapshot();
  const auto turn_in = its_.turns.view(queue::Direction::in),
             turn_out = its_.turns.view(queue::Direction::out);
  const State state = its_.stops.state();
  replies::Progress shown{.state = name_of(state),
                          .bytes_done = p.bytes_done,
                          .bytes_total = p.bytes_total,
                          .files_done = p.files_done,
                          .files_total = p.files_total,
                          .started = static_cast<double>(p.started) / 1e9,
                          .note = {},
                          .turn = {},
                          .eta_seconds = {}};
  if (const char* const note = state == State::unmounting ? its_.mount.waits_for() : nullptr) {
    shown.note = note;
  }
  // While programs run, turns belong to tasks.
  const auto& turn = state == State::staging_in ? turn_in : turn_out;
  const bool moving = traits_of(state).transfers;
  if (turn && moving) {
    shown.turn = turn_of(*turn);
  }
  if (moving && !(turn && turn->standing == queue::Standing::waiting)) {
    shown.eta_seconds = seconds_left(p);
  }
  return shown;
}

void JobStatus::add_turn(replies::Task& task) const {
  if (task.task_state != name_of(TaskState::running)) {
    return;
  }
  if (const auto turn = its_.turns.view(
          task.kind == name_of(TaskKind::load) ? queue::Direction::in : queue::Direction::out)) {
    task.turn = turn_of(*turn);
  }
}

Json JobStatus::status_file() const {
  const stage::ProgressSnapshot p = its_.progress.snapshot();
  const auto& config = its_.facts.config;
  Json json{{"version", 1},
            {"name", config.name},
            {"job_file", config.source},
            {"mount", config.mount_dir},
            {"supervisor_pid", its_.facts.supervisor},
            {"worker_pid", ::getpid()},
            {"since", since(its_.facts)},
            {"bytes_done", p.bytes_done},
            {"bytes_total", p.bytes_total},
            {"files_done", p.files_done},
            {"files_total", p.files_total}};
  const auto [state, error, unsaved] = its_.stops.shown();
  json["state"] = name_of(state);
  const auto failure = state == State::failed ? its_.start.failure() : std::nullopt;
  json["error"] = failure ? Json(failure->error) : or_null(error ? error : unsaved);
  const bool moving = traits_of(state).transfers;
  const auto done = static_cast<double>(p.bytes_done), total = static_cast<double>(p.bytes_total);
  json["progress"] = !moving ? Json() : total > 0 ? Json(done / total) : Json(0.0);
  json["eta_seconds"] = moving ? or_null(seconds_left(p)) : Json();
  return json;
}

std::optional<replies::Changed> JobStatus::changed() const {
  constexpr auto longest = std::chrono::milliseconds(100);
  std::optional<replies::Changed> changed;
  (void)its_.buffer.use([&](const OpenBuffer& buffer) {
    const auto end = std::chrono::steady_clock::now() + longest;
    const auto items = fs::Staging(buffer.files).walk({}, [end] {
      return std::chrono::steady_clock::now() >= end;
    });
    if (!items) {
      return;
    }
    std::uint64_t bytes = 0;
    const auto selection = stage::select_outgoing(its_.facts.config, *items);
    for (const auto* item : selection.outgoing) {
      bytes += S_ISREG(item->attributes.st_mode)
                   ? static_cast<std::uint64_t>(item->attributes.st_size)
                   : 0;
    }
    changed = {.changed_files = selection.outgoing.size(), .changed_bytes = bytes};
  });
  return changed;
}

replies::Identity JobStatus::identity() const {
  const auto& config = its_.facts.config;
  return {.name = config.name,
          .job_file = config.source,
          .start_options = config.start_options,
          .mount = config.mount_dir,
          .root_dir = config.root_dir,
          .results_dir = config.results_dir,
          .directory = its_.facts.directory,
          .log = config.log_file.empty() ? its_.facts.directory + "/efsd.log" : config.log_file,
          .supervisor_pid = its_.facts.supervisor,
          .worker_pid = ::getpid(),
          .takeovers = its_.facts.takeovers,
          .protocol = control::protocol_version,
          .since = since(its_.facts)};
}

replies::Status JobStatus::status(bool with_changed) const {
  replies::Status status;
  status.progress = progress();
  status.job = identity();
  status.tasks = its_.tasks.list();
  for (auto& task : status.tasks) {
    add_turn(task);
  }
  status.error = its_.stops.shown().unsaved;
  status.given_up = its_.start.is_starter_gone();
  for (auto* source : its_.sources) {
    source->add_status(status);
  }
  if (with_changed && status.progress.state == name_of(State::running)) {
    status.changed = changed();
  }
  return status;
}

}  // namespace efs::daemon
