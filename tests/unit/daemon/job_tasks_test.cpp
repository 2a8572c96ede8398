// SPDX-License-Identifier: BSD-3-Clause
// The tasks of a job while a stop ends them or unloads.
#include "daemon/job_tasks.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <latch>
#include <optional>
#include <thread>

#include "support/temp.hpp"
#include "unit/daemon/stop_scene.hpp"

namespace efs::daemon {
namespace {

using control::replies::TaskOutcome;

TaskOutcome ended_well() {
  return {.ok = true, .failure = {}, .loaded = {}, .unloaded = {}};
}

// A request with so much time that a passing test never waits to its end.
StopRequest with_time() {
  return {.times = StopTimes::within(600, std::chrono::steady_clock::now())};
}

struct TasksScene : scene::StopScene {
  TasksScene() {
    (void)stops.enter(Event::planned);
    (void)stops.enter(Event::mounted);
    opened = tasks.open("", false, false).has_value();
  }

  /// Starts a task that runs until it is cancelled, and waits for its begin.
  std::uint64_t start_endless(TaskKind kind) {
    std::latch begun(1);
    const auto id = tasks.get().start(kind, "endless", [&begun](stage::Progress& its) {
      begun.count_down();
      while (!its.cancel) {
        std::this_thread::yield();
      }
      TaskOutcome outcome;
      outcome.failure.code = ECANCELED;
      return outcome;
    });
    begun.wait();
    return *id;
  }

  std::string state_of(std::uint64_t id) { return tasks.get().look(id)->task_state; }

  JobTasks tasks{stops};
  bool opened = false;
};

TEST_CASE("a successor finds the tasks that its predecessor has lost", "[daemon][tasks]") {
  const test::TempDirectory directory;
  const std::string book = directory.path() + "/tasks";
  TasksScene it;
  REQUIRE(it.tasks.open(book, false, false));
  const auto id = it.start_endless(TaskKind::load);
  JobTasks successor(it.stops);
  REQUIRE(successor.open(book, true, false));
  CHECK(successor.get().lost() == 1);
  CHECK(successor.get().look(id)->task_state == "failed");
}

TEST_CASE("a stop cancels loads, and unloads only if it has no time for them", "[daemon][tasks]") {
  TasksScene it;
  REQUIRE(it.opened);
  const auto load = it.start_endless(TaskKind::load);
  std::atomic<bool> unloaded = false;
  const auto unload = it.tasks.get().start(TaskKind::unload, "a", [&](stage::Progress& progress) {
    unloaded = !progress.cancel;
    return ended_well();
  });
  CHECK(it.tasks.end_for({}));
  CHECK((it.state_of(load) == "cancelled" && it.state_of(*unload) == "done" && unloaded));
  CHECK(it.tasks.get().start(TaskKind::load, "b", {}).error().code == ESHUTDOWN);
  for (const StopRequest& request : {with_time(), StopRequest{.stage_out = false, .times = {}}}) {
    it.tasks.get().reopen();
    const auto id = it.start_endless(TaskKind::unload);
    CHECK(it.tasks.end_for(request));
    CHECK(it.state_of(id) == "cancelled");
  }
}

TEST_CASE("a later stop without an export ends the wait for an unload", "[daemon][tasks]") {
  TasksScene it;
  const auto id = it.start_endless(TaskKind::unload);
  std::jthread other([&] { it.stops.ask({.stage_out = false, .times = {}}); });
  CHECK(it.tasks.end_for({}));
  CHECK(it.state_of(id) == "cancelled");
}

TEST_CASE("an unload for a stop has an outcome, and tasks may start meanwhile", "[daemon][tasks]") {
  TasksScene it;
  REQUIRE(it.tasks.end_for(with_time()));
  const auto outcome = it.tasks.unload_for(with_time(), [&](stage::Progress&) {
    // reopened before the unload is awaited
    while (!it.tasks.get().start(TaskKind::load, "a", [](auto&) { return ended_well(); })) {
      std::this_thread::yield();
    }
    auto done = ended_well();
    done.unloaded.emplace().summary = "two files";
    return done;
  });
  REQUIRE(outcome);
  CHECK((outcome->ok && outcome->unloaded.value().summary == "two files"));
}

TEST_CASE("an unload for a stop without an answer is cancelled at its time and left",
          "[daemon][tasks]") {
  TasksScene it;
  std::latch answers(1);
  std::atomic<bool> cancelled = false;
  StopRequest request = with_time();
  request.times.until = request.times.gone_by = std::chrono::steady_clock::now();
  std::optional<TaskOutcome> outcome;
  int dropped = 0;  // an unload that has not begun at its time
  do {
    outcome = it.tasks.unload_for(request, [&](stage::Progress& progress) {
      answers.wait();  // like a call to a PFS that hangs
      cancelled = progress.cancel.load();
      return ended_well();
    });
  } while (outcome && !outcome->ok && ++dropped < 10'000);
  CHECK_FALSE(outcome);
  answers.count_down();
  CHECK(it.tasks.end_for({}));
  CHECK(cancelled);
}

TEST_CASE("a later stop without an export ends an unload for a stop", "[daemon][tasks]") {
  TasksScene it;
  std::latch begun(1);
  std::jthread other([&] {
    begun.wait();
    it.stops.ask({.stage_out = false, .times = {}});
  });
  std::atomic<bool> cancelled = false;
  (void)it.tasks.unload_for(with_time(), [&](stage::Progress& progress) {
    begun.count_down();
    while (!progress.cancel) {
      std::this_thread::yield();
    }
    cancelled = true;
    return ended_well();
  });
  CHECK(it.tasks.end_for({}));
  CHECK(cancelled);
}

}  // namespace
}  // namespace efs::daemon
