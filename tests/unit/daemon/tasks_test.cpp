// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/tasks.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <future>

#include "base/log.hpp"
#include "support/failing_new.hpp"
#include "support/file_text.hpp"
#include "support/temp.hpp"

using namespace efs;
using control::replies::TaskOutcome;
using daemon::TaskKind;
using daemon::Tasks;

namespace {

// limits a wait for an end that never comes; a passing test does not wait so long
constexpr auto long_enough = std::chrono::seconds(60);

TaskOutcome success() {
  return {.ok = true, .failure = {}, .loaded = {}, .unloaded = {}};
}

TaskOutcome cancelled() {
  TaskOutcome outcome;
  outcome.failure.code = ECANCELED;
  return outcome;
}

TaskOutcome one_file(stage::Progress&) {
  auto outcome = success();
  outcome.loaded.emplace().files = 1;
  return outcome;
}

// A task that runs until it is cancelled or released.
struct Held {
  std::promise<void> begun, go;
  std::shared_future<void> going = go.get_future().share();

  Tasks::Work work() {
    return [this](stage::Progress& progress) {
      begun.set_value();
      while (!progress.cancel &&
             going.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      }
      return progress.cancel ? cancelled() : success();
    };
  }
};

std::string state(Tasks& tasks, std::uint64_t id) {
  return tasks.look(id)->task_state;
}

}  // namespace

TEST_CASE("a task runs, ends and keeps its outcome") {
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  const auto id = *tasks.start(TaskKind::load, "a/b", one_file);
  REQUIRE(tasks.wait(id, long_enough) == true);
  const auto seen = tasks.look(id);
  CHECK(seen->task_state == "done");
  CHECK(seen->what == "a/b");
  CHECK(seen->outcome.value().loaded.value().files == 1);
  CHECK(tasks.cancel(id).error().code == EALREADY);
  CHECK(tasks.look(id + 1).error().code == ESRCH);
  CHECK(tasks.wait(id + 1, long_enough).error().code == ESRCH);
  CHECK(tasks.cancel(id + 1).error().code == ESRCH);
  CHECK(tasks.list().size() == 1);
}

TEST_CASE("a task ends without memory, whichever allocation fails") {
  const test::TempDirectory directory;
  const auto opened = Tasks::open(directory.path() + "/tasks");
  REQUIRE(opened);
  Tasks& tasks = **opened;
  tasks.inherit(false);
  for (std::uint64_t n = 1; n < 40; ++n) {
    // active in the task's thread from the end of the task on
    std::optional<test::FailingNew> failing;
    const auto id = *tasks.start(TaskKind::unload, "a file", [&](stage::Progress&) {
      auto outcome = success();
      failing.emplace(n);
      return outcome;
    });
    REQUIRE(tasks.wait(id, long_enough) == true);
    CHECK(state(tasks, id) == "done");
    // The failed end left nothing in that thread.
    REQUIRE(tasks.wait(*tasks.start(TaskKind::unload, "next",
                                    [](stage::Progress&) {
                                      const test::FailingNew none(0);
                                      return success();
                                    }),
                       long_enough) == true);
  }
}

TEST_CASE("an exception is the task's failure and nobody else's") {
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  const auto bad = *tasks.start(TaskKind::load, "x", [](stage::Progress&) -> TaskOutcome {
    throw std::runtime_error("no memory");
  });
  const auto next = *tasks.start(TaskKind::load, "y", one_file);
  REQUIRE(tasks.wait(next, long_enough) == true);
  CHECK(state(tasks, bad) == "failed");
  CHECK(state(tasks, next) == "done");
}

TEST_CASE("each kind runs one after the other, and neither waits for the other") {
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  Held held;
  const auto first = *tasks.start(TaskKind::unload, "1", held.work());
  held.begun.get_future().wait();
  const auto second = *tasks.start(TaskKind::unload, "2", one_file);
  const auto load = *tasks.start(TaskKind::load, "3", one_file);
  REQUIRE(tasks.wait(load, long_enough) == true);
  CHECK(state(tasks, first) == "running");
  CHECK(state(tasks, second) == "pending");
  CHECK(tasks.wait(second, std::chrono::milliseconds(0)) == false);
  held.go.set_value();
  REQUIRE(tasks.wait(second, long_enough) == true);
  CHECK(state(tasks, first) == "done");
}

TEST_CASE("cancel ends a waiting task at once and a running one soon") {
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  Held held;
  const auto running = *tasks.start(TaskKind::load, "1", held.work());
  held.begun.get_future().wait();
  const auto waiting = *tasks.start(TaskKind::load, "2", one_file);
  REQUIRE(tasks.cancel(waiting));
  CHECK(state(tasks, waiting) == "cancelled");
  REQUIRE(tasks.cancel(running));
  REQUIRE(tasks.wait(running, long_enough) == true);
  CHECK(state(tasks, running) == "cancelled");
}

TEST_CASE("a close cancels loads, finishes unloads and refuses new ones until it is reopened") {
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  Held load, unload;
  const auto a = *tasks.start(TaskKind::load, "a", load.work());
  const auto b = *tasks.start(TaskKind::unload, "b", unload.work());
  const auto c = *tasks.start(TaskKind::unload, "c", one_file);
  load.begun.get_future().wait();
  unload.begun.get_future().wait();
  auto closed = std::async(std::launch::async, [&] { tasks.close(true); });
  REQUIRE(tasks.wait(a, long_enough) == true);
  CHECK(state(tasks, a) == "cancelled");
  CHECK(tasks.start(TaskKind::load, "late", one_file).error().code == ESHUTDOWN);
  CHECK(state(tasks, b) == "running");
  unload.go.set_value();
  closed.wait();
  CHECK(state(tasks, b) == "done");
  CHECK(state(tasks, c) == "done");
  tasks.reopen();
  const auto again = tasks.start(TaskKind::load, "again", one_file);
  REQUIRE(again);
  CHECK(tasks.wait(*again, long_enough) == true);
}

TEST_CASE("a close without a stage-out cancels unloads, too") {
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  Held held;
  const auto id = *tasks.start(TaskKind::unload, "a", held.work());
  held.begun.get_future().wait();
  tasks.close(false);
  CHECK(state(tasks, id) == "cancelled");
}

TEST_CASE("a close waits no longer than it may for what does not end") {
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  std::promise<void> begun, answers;
  const auto id = *tasks.start(
      TaskKind::unload, "hangs", [&, answer = answers.get_future().share()](stage::Progress&) {
        begun.set_value();
        answer.wait();  // ignores a cancel, like a call to a PFS that does not answer
        return success();
      });
  begun.get_future().wait();
  CHECK_FALSE(tasks.close(false, std::chrono::steady_clock::now()));
  CHECK(tasks.start(TaskKind::unload, "late", one_file).error().code == ESHUTDOWN);
  answers.set_value();
  CHECK(tasks.close(false));
  CHECK(state(tasks, id) == "done");
}

TEST_CASE(
    "an unload for a stop begins between a close and a reopen, and others not before it has "
    "ended") {
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  tasks.close(false);
  Held held;
  const auto first = tasks.start(TaskKind::stop_unload, "all", held.work());
  REQUIRE(first);
  held.begun.get_future().wait();
  tasks.reopen();  // a stop that did not wait for the task does this
  std::atomic<bool> is_over = false, met = false;
  const auto unload = *tasks.start(TaskKind::unload, "one", [&](stage::Progress&) {
    met = !is_over;
    return success();
  });
  const auto load = *tasks.start(TaskKind::load, "one", one_file);
  REQUIRE(tasks.wait(load, long_enough) == true);
  CHECK(state(tasks, unload) == "pending");
  is_over = true;
  held.go.set_value();
  REQUIRE(tasks.wait(unload, long_enough) == true);
  CHECK_FALSE(met);
  CHECK(state(tasks, *first) == "done");
}

TEST_CASE("a drain and an unload never run together, and no list or book has a drain") {
  test::TempDirectory directory;
  const std::string book = directory.path() + "/tasks";
  const auto opened = Tasks::open(book, true);
  REQUIRE(opened);
  Tasks& tasks = **opened;
  tasks.inherit(false);
  Held unload, drain;
  const auto first = *tasks.start(TaskKind::unload, "one", unload.work());
  unload.begun.get_future().wait();
  const auto second = *tasks.start(TaskKind::drain, "two", drain.work());
  CHECK(state(tasks, second) == "pending");
  unload.go.set_value();
  drain.begun.get_future().wait();
  CHECK(state(tasks, first) == "done");
  const auto third = *tasks.start(TaskKind::unload, "three", one_file);
  CHECK(state(tasks, third) == "pending");
  CHECK(tasks.list().size() == 2);
  CHECK_FALSE(test::file_text(book).contains("two"));
  drain.go.set_value();
  REQUIRE(tasks.wait(third, long_enough) == true);
  CHECK(tasks.look(second).error().code == ESRCH);
}

TEST_CASE("a drain gives way to an unload that waits for it, and not to a load") {
  const auto opened = Tasks::open("", true);
  REQUIRE(opened);
  Tasks& tasks = **opened;
  std::promise<void> begun, loaded;
  std::promise<bool> gave_way_early;
  (void)tasks.start(TaskKind::drain, "one", [&](stage::Progress& progress) {
    begun.set_value();
    loaded.get_future().wait();
    gave_way_early.set_value(progress.gives_way);
    while (!progress.gives_way) {
      std::this_thread::yield();
    }
    return success();
  });
  begun.get_future().wait();
  const auto load = *tasks.start(TaskKind::load, "two", one_file);
  REQUIRE(tasks.wait(load, long_enough) == true);
  loaded.set_value();
  CHECK_FALSE(gave_way_early.get_future().get());
  const auto unload = *tasks.start(TaskKind::unload, "three", one_file);
  REQUIRE(tasks.wait(unload, long_enough) == true);
}

TEST_CASE("a close that lets unloads end cancels a drain, also one that waits") {
  const auto opened = Tasks::open("", true);
  REQUIRE(opened);
  Tasks& tasks = **opened;
  std::promise<void> begun;
  std::atomic<bool> has_begun = false;
  (void)tasks.start(TaskKind::drain, "one", [&](stage::Progress& progress) {
    begun.set_value();
    while (!progress.cancel) {
      std::this_thread::yield();
    }
    return success();
  });
  begun.get_future().wait();
  (void)tasks.start(TaskKind::drain, "two", [&](stage::Progress&) {
    has_begun = true;
    return success();
  });
  CHECK(tasks.close(true));
  CHECK_FALSE(has_begun);
}

TEST_CASE("waiting tasks are bounded, ended ones forgotten") {
  (void)log::setup("", "warn");  // avoid a log line for each of a thousand tasks
  const auto opened = Tasks::open();
  REQUIRE(opened);
  Tasks& tasks = **opened;
  Held held;
  const auto first = *tasks.start(TaskKind::load, "first", held.work());
  held.begun.get_future().wait();
  for (std::size_t i = 0; i < Tasks::most_waiting; ++i) {
    REQUIRE(tasks.start(TaskKind::load, "more", one_file));
  }
  CHECK(tasks.start(TaskKind::load, "too many", one_file).error().code == EAGAIN);
  held.go.set_value();
  (void)tasks.wait(first, long_enough);
  tasks.close(true);
  tasks.reopen();
  const auto last = *tasks.start(TaskKind::unload, "last", one_file);
  REQUIRE(tasks.wait(last, long_enough) == true);
  CHECK(tasks.look(first).error().code == ESRCH);
  CHECK(tasks.list().size() <= Tasks::most_ended);
}

TEST_CASE("a successor knows of the tasks that had not ended") {
  (void)log::setup("", "off");
  test::TempDirectory directory;
  const std::string book = directory.path() + "/tasks";
  std::uint64_t done = 0, lost = 0;
  {
    const auto opened = Tasks::open(book);
    Tasks& tasks = **opened;
    tasks.inherit(false);
    done = *tasks.start(TaskKind::load, "done", one_file);
    REQUIRE(tasks.wait(done, long_enough) == true);
    Held held;
    const auto first = *tasks.start(TaskKind::unload, "lost", held.work());
    held.begun.get_future().wait();
    lost = first;
    // The book after a death of the process, with an unfinished line.
    std::ofstream(book + ".then") << std::ifstream(book).rdbuf() << "{\"task\":7,\"ki";
    held.go.set_value();
    (void)tasks.wait(first, long_enough);
  }
  for (int life = 0; life < 2; ++life) {
    const auto opened = Tasks::open(book + ".then");
    Tasks& tasks = **opened;
    tasks.inherit(true);
    CHECK(tasks.look(done).error().code == ESRCH);
    const auto seen = tasks.look(lost);
    REQUIRE(seen);
    CHECK(seen->task_state == "failed");
    CHECK(seen->what == "lost");
    CHECK(seen->outcome.value().failure.code == ECONNABORTED);
    if (life == 1) {
      CHECK(*tasks.start(TaskKind::load, "next", one_file) == lost + 1);
    }
  }
  const auto fresh = Tasks::open(book + ".then");
  (*fresh)->inherit(false);
  CHECK((*fresh)->list().empty());
}
