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

Json since(const JobFacts& facts) {
  return std::chrono::duration_cast<std::chrono::seconds>(facts.started.time_since_epoch()).count();
}

}  // namespace

Json JobStatus::progress() const {
  const stage::ProgressSnapshot p = its_.progress.snapshot();
  const auto turn_in = its_.turns.view(queue::Direction::in),
             turn_out = its_.turns.view(queue::Direction::out);
  const State state = its_.stops.state();
  Json line{{"state", name_of(state)},      {"bytes_done", p.bytes_done},
            {"bytes_total", p.bytes_total}, {"files_done", p.files_done},
            {"files_total", p.files_total}, {"started", static_cast<double>(p.started) / 1e9}};
  if (state == State::unmounting) {
    if (const char* const note = its_.mount.waits_for()) {
      line["note"] = note;
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

void JobStatus::add_turn(Json& task) const {
  if (task.value("task_state", "") != name_of(TaskState::running)) {
    return;
  }
  if (const auto turn = its_.turns.view(task.value("kind", "") == name_of(TaskKind::load)
                                            ? queue::Direction::in
                                            : queue::Direction::out)) {
    task["turn"] = to_json(*turn);
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
  const Json failure = state == State::failed ? its_.start.failure() : Json();
  json["error"] = failure.contains("error") ? failure["error"] : !error.is_null() ? error : unsaved;
  const bool moving = traits_of(state).transfers;
  const auto done = static_cast<double>(p.bytes_done), total = static_cast<double>(p.bytes_total);
  json["progress"] = !moving ? Json() : total > 0 ? Json(done / total) : Json(0.0);
  json["eta_seconds"] = moving ? seconds_left(p) : Json();
  return json;
}

void JobStatus::add_changed(Json& status) const {
  constexpr auto longest = std::chrono::milliseconds(100);
  if (status.value("state", "") != name_of(State::running)) {
    return;
  }
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
    status["changed_files"] = selection.outgoing.size();
    status["changed_bytes"] = bytes;
  });
}

void JobStatus::add_identity(Json& status) const {
  const auto& config = its_.facts.config;
  status["name"] = config.name;
  status["job_file"] = config.source;
  status["start_options"] = config.start_options;
  status["mount"] = config.mount_dir;
  status["root_dir"] = config.root_dir;
  status["results_dir"] = config.results_dir;
  status["directory"] = its_.facts.directory;
  status["log"] = config.log_file.empty() ? its_.facts.directory + "/efsd.log" : config.log_file;
  status["supervisor_pid"] = its_.facts.supervisor;
  status["worker_pid"] = ::getpid();
  status["takeovers"] = its_.facts.takeovers;
  status["protocol"] = control::protocol_version;
  status["since"] = since(its_.facts);
}

Json JobStatus::status(bool changed) const {
  Json status = progress();
  add_identity(status);
  status["tasks"] = its_.tasks.list();
  for (auto& task : status["tasks"]) {
    add_turn(task);
  }
  if (Json unsaved = its_.stops.shown().unsaved; !unsaved.is_null()) {
    status["error"] = std::move(unsaved);
  }
  if (its_.start.is_starter_gone()) {
    status["given_up"] = true;
  }
  for (auto* source : its_.sources) {
    source->add_status(status);
  }
  if (changed) {
    add_changed(status);
  }
  return status;
}

}  // namespace efs::daemon
