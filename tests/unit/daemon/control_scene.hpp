// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The parts of a job as its control requests see them, without a mount: what the tests of the
// control verbs share.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control_api.hpp"
#include "support/fake_timers.hpp"
#include "support/live_buffer.hpp"

namespace efs::daemon::scene {

using control::Json;
using control::replies::TaskOutcome;
using efs::test::FakeTimers;
using efs::test::LiveBuffer;

/// A buffer that tests open and close.
struct FakeBuffer final : BufferAccess {
  bool use(const std::function<void(const OpenBuffer&)>& work) override {
    if (buffer) {
      work({.files = *buffer->filesystem, .backend = *buffer->backend});
    }
    return buffer != nullptr;
  }

  bool is_kept() const override { return kept; }

  std::unique_ptr<LiveBuffer> buffer;
  bool kept = false;
};

/// Notes the transfers and does nothing.
struct FakeTransfers final : LiveTransfers {
  TaskOutcome load(const stage::LoadRequest& what, stage::Progress& progress) override {
    progress.begin(what.names.size(), 0);
    loaded = what.names;
    TaskOutcome outcome{.ok = true, .failure = {}, .loaded = {}, .unloaded = {}};
    outcome.loaded.emplace().files = what.names.size();
    return outcome;
  }

  TaskOutcome unload(const stage::UnloadRequest& what, stage::Progress&) override {
    unloaded = what.names;
    TaskOutcome outcome;
    outcome.failure.error = "the PFS is away";
    return outcome;
  }

  TaskOutcome move(const MoveRequest& what, stage::Progress&) override {
    moved = what.names;
    to = what.place;
    TaskOutcome outcome{.ok = true, .failure = {}, .loaded = {}, .unloaded = {}};
    outcome.moved.emplace().moved = what.names.size();
    return outcome;
  }

  std::vector<std::string> loaded, unloaded, moved;
  unsigned to = 0;
};

/// Notes what is asked for and has fetched it.
struct FakeFetches final : FetchControl {
  void prepare(std::size_t files) override { prepared = files; }

  TaskOutcome fetch_files(const Request& what, stage::Progress&) override {
    asked = what.files.size();
    already = what.already;
    TaskOutcome outcome{.ok = true, .failure = {}, .loaded = {}, .unloaded = {}};
    outcome.loaded.emplace().files = asked;
    return outcome;
  }

  bool is_fetching(std::uint64_t) override { return fetching; }

  Background await_background(std::chrono::milliseconds) override { return background; }

  std::size_t prepared = 0, asked = 0;
  std::uint64_t already = 0;
  bool fetching = false;
  Background background;
};

struct FakeMount final : MountControl {
  const char* waits_for() override { return note; }

  Json change_limits(const control::requests::Limit& request) override {
    return control::result_line({{"limits", {{"read", request.read.value_or(0)}}}});
  }

  const char* note = nullptr;
};

struct FakeSource final : StatusSource {
  void add_status(control::replies::Status& status) override {
    status.store.emplace().capacity = 4096;
  }
};

struct ControlScene {
  explicit ControlScene(unsigned takeovers = 0)
      : facts{.config = config, .directory = "/run/job", .supervisor = 77, .takeovers = takeovers},
        stops({.successor = takeovers > 0}, deadline, progress),
        tasks(std::move(*Tasks::open())) {
    config.name = "job";
    config.root_dir = "/pfs/in";
    config.results_dir = "/pfs/out";
    config.mount_dir = "/mnt";
  }

  ControlScene& running() {
    (void)stops.enter(Event::planned);
    (void)stops.enter(Event::mounted);
    buffer.buffer = std::make_unique<LiveBuffer>();
    return *this;
  }

  /// The stop of the instance exported all results, and the instance ends.
  void end_well() {
    control::replies::Stopped outcome;
    outcome.staged_out = true;
    outcome.exit = 0;
    end(std::move(outcome));
  }

  /// The stop of the instance ended with this outcome, and the instance ends.
  void end(StopAnswer outcome) {
    (void)stops.enter(Event::stop_begun);
    stops.finish(stops.await_stop().request, std::move(outcome));
    (void)stops.enter(Event::over);
  }

  Json ask(const Json& request, bool there = true) {
    const control::Server::Progress to_client(
        [&](Json line) {
          lines.push_back(std::move(line));
          return there;
        },
        alone);
    return api.handle(Json::parse(request.dump()), to_client);  // as the server reads it
  }

  /// Runs a task to its end. Returns its outcome.
  Json outcome_of(const Json& started) {
    return ask({{"verb", "wait-task"}, {"task", started.at("task")}}).at("outcome");
  }

  config::JobConfig config;
  FakeTimers timers;
  stage::Progress progress;
  SlotClient turns;
  Deadline deadline{timers,
                    {.cut_export = [] {},
                     .leave = [] {},
                     .give_up =
                         [] {
                         }}};
  JobFacts facts;
  StopCoordinator stops;
  StartOutcome start;
  FakeBuffer buffer;
  FakeTransfers transfers;
  FakeFetches fetches;
  FakeMount mount;
  FakeSource source;
  bool alone = false;  // the answer blocks all other clients
  std::vector<Json> lines;
  std::unique_ptr<Tasks> tasks;
  JobStatus status{{.facts = facts,
                    .stops = stops,
                    .start = start,
                    .progress = progress,
                    .turns = turns,
                    .tasks = *tasks,
                    .buffer = buffer,
                    .mount = mount,
                    .sources = {&source}}};
  ControlApi api{{.facts = facts,
                  .stops = stops,
                  .start = start,
                  .tasks = *tasks,
                  .status = status,
                  .buffer = buffer,
                  .transfers = transfers,
                  .fetches = fetches,
                  .mount = mount}};
};

}  // namespace efs::daemon::scene
