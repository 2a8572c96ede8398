// SPDX-License-Identifier: BSD-3-Clause
#include "control/replies.hpp"

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <string>

#include "base/json_text.hpp"
#include "control/status_reply.hpp"

namespace efs::control::replies {
namespace {

template <typename Reply>
void round_trip(const Reply& reply, bool success) {
  const Json line = json_from_text(json_to_text(to_json(reply)));
  CHECK(line["event"] == "result");
  CHECK(is_success(line) == success);
  CHECK(from_json<Reply>(line) == reply);
}

TEST_CASE("a reply is the same on the other side", "[control]") {
  round_trip(TaskStarted{.task = UINT64_MAX}, true);
  round_trip(Counted{.count = 3}, true);
  round_trip(BackgroundInputs{.left = 3, .failed = UINT64_MAX, .last_error = "a: no"}, true);
  round_trip(BackgroundInputs{}, true);
  round_trip(Failure{.code = EBUSY, .error = "in use\nby all", .lines = true, .exit = 2}, false);
  round_trip(Failure{}, false);
}

TEST_CASE("a failure is the line of its error", "[control]") {
  for (const bool lines : {false, true}) {
    const Error error{EBUSY, "in use", lines};
    const Json line = error_line(error, 2);
    const auto failure = from_json<Failure>(line);
    CHECK(failure == Failure{.code = EBUSY, .error = describe(error), .lines = lines, .exit = 2});
    CHECK(to_json(failure) == line);
  }
}

TEST_CASE("a reader of a reply needs no field and trusts none", "[control]") {
  CHECK(from_json<TaskStarted>(Json::object()).task == 0);
  CHECK(from_json<TaskStarted>({{"task", -4}}).task == 0);
  CHECK(from_json<TaskStarted>({{"task", "5"}}).task == 0);
  CHECK(from_json<TaskStarted>({{"task", 5U}, {"later", true}}).task == 5);
  CHECK(from_json<Failure>({{"code", "EIO"}, {"error", 7}}) == Failure{});
  CHECK_FALSE(is_success(Json::object()));
  CHECK_FALSE(is_success({{"ok", "true"}}));
}

Turn a_turn() {
  return {.direction = "in",
          .standing = "waiting",
          .ahead = 3,
          .since = 12.5,
          .wait_seconds = 60,
          .reason = "the queue is full"};
}

Failure a_failure() {
  return {.code = EBUSY, .error = "in use", .lines = true, .exit = 3};
}

TaskOutcome an_unload(bool ok) {
  return {.ok = ok,
          .failure = ok ? Failure{} : a_failure(),
          .loaded = {},
          .unloaded = Unloaded{.summary = "d/\xff b", .receipt = {}}};
}

TaskOutcome a_load() {
  return {.ok = true,
          .failure = {},
          .loaded = Loaded{.files = 1, .already = 2, .bytes = UINT64_MAX, .seconds = 0.5},
          .unloaded = {}};
}

TaskOutcome a_move(bool ok) {
  Moved moved{
      .moved = 3, .moved_bytes = UINT64_MAX, .unchanged = 2, .stayed = 0, .stayed_first = {}};
  if (!ok) {
    moved.stayed = 1;
    moved.stayed_first = {{.path = "d/\xff b", .reason = "a program has it open"}};
  }
  return {.ok = ok,
          .failure = ok ? Failure{} : a_failure(),
          .loaded = {},
          .unloaded = {},
          .moved = std::move(moved)};
}

Task a_task() {
  return {.task = 7,
          .kind = "load",
          .what = "d/\xff b",
          .task_state = "running",
          .bytes_done = 1,
          .bytes_total = UINT64_MAX,
          .files_done = 3,
          .files_total = 4,
          .started = 5.25,
          .turn = a_turn(),
          .state = "load running",
          .outcome = a_load()};
}

Stopped a_stop() {
  return {.staged_out = true,
          .exit = 3,
          .time_was_up = false,
          .conflicts = 1,
          .replaced = 2,
          .unreadable = 0,
          .summary = "two results\n",
          .error = "no",
          .receipt_file = "/out/r.json",
          .report_file = "/out/r.html",
          .unmatched = {{"text", "a rule"}},
          .image = "/nvm/a",
          .all_back = false,
          .kept = true,
          .lingers = true};
}

Store a_store() {
  BackendFigures backend{.id = "ram",
                         .description = "memory",
                         .capacity = 1,
                         .used = 2,
                         .available = 3,
                         .durability = "nothing",
                         .journal = true,
                         .new_files = true,
                         .io = "daemon"};
  return {.backend = "two",
          .capacity = 10,
          .used = 4,
          .available = 6,
          .durability = "a crash",
          .read_only = true,
          .open_files = OpenFiles{.kernel = 1, .sessions = 2},
          .backends = {backend, backend}};
}

Mount a_mount() {
  return {.io = "daemon",
          .io_reason = "traced",
          .writeback = true,
          .takeover = false,
          .takeover_reason = "an old kernel",
          .limits = Limits{.read = 1, .write = 2, .ops = 3, .delayed = 4},
          .counters = {{"requests", 5}, {"operations", {{"open", {{"count", 1}}}}}},
          .intercept = Intercept{.clients_now = 1,
                                 .clients = {{.pid = 4,
                                              .program = "sim",
                                              .reads = 1,
                                              .read_bytes = 2,
                                              .writes = 3,
                                              .written_bytes = 4,
                                              .kernel_calls = 5,
                                              .mapped_files = 6}},
                                 .totals = {.clients = 1,
                                            .reads = 2,
                                            .read_bytes = 3,
                                            .writes = 4,
                                            .written_bytes = 5,
                                            .kernel_calls = 6}}};
}

Progress a_progress() {
  return {.state = "staging-in",
          .bytes_done = 1,
          .bytes_total = 2,
          .files_done = 3,
          .files_total = 4,
          .started = 1.5,
          .note = "the mount is in use",
          .turn = a_turn(),
          .eta_seconds = 2.5};
}

Identity an_identity() {
  return {.name = "job",
          .job_file = "/d/\xff b",
          .start_options = {"--name", "job"},
          .mount = "/mnt",
          .root_dir = "/pfs/in",
          .results_dir = "/pfs/out",
          .directory = "/run/job",
          .log = "/run/job/efsd.log",
          .supervisor_pid = 1,
          .worker_pid = 2,
          .takeovers = 3,
          .protocol = 1,
          .since = 4};
}

Status a_status() {
  Recording recording{.file = "/t", .error = "no space", .lost_lines = 5};
  return {.progress = a_progress(),
          .job = an_identity(),
          .tasks = {a_task(), a_task()},
          .error = "two results",
          .given_up = true,
          .staged_in = StagedIn{.files = 1,
                                .bytes = 2,
                                .bytes_read = 3,
                                .files_reused = 4,
                                .bytes_reused = 5,
                                .files_away = 6,
                                .skipped = 1,
                                .skipped_first = {{.path = "a", .reason = "b", .vanished = true}}},
          .status_file = "/s",
          .trace = recording,
          .access_log = recording,
          .lost_before = "all",
          .store = a_store(),
          .mount = a_mount(),
          .drain = Drain{.drained = 1,
                         .drained_bytes = 2,
                         .failures = 3,
                         .due = 4,
                         .last_error = "no answer",
                         .dropped = 5,
                         .dropped_bytes = 6,
                         .unsent = 7,
                         .unsent_bytes = 8},
          .tiers = {{.id = "ram",
                     .capacity = 1,
                     .used = 2,
                     .moved_in = 3,
                     .moved_in_bytes = 4,
                     .moved_out = 5,
                     .moved_out_bytes = 6,
                     .last_error = "no room"}},
          .changed = Changed{.changed_files = 1, .changed_bytes = 2}};
}

TEST_CASE("the answer to a stop is the same on the other side", "[control]") {
  round_trip(a_stop(), true);
  round_trip(Stopped{}, true);
  round_trip(StopFailed{.failure = a_failure(), .summary = "one", .ended = true}, false);
  round_trip(StopFailed{}, false);
  CHECK(to_json(Stopped{}) == result_line());
  CHECK(to_json(StopFailed{}) == to_json(Failure{}));
  // a client that cares for the error alone
  CHECK(from_json<Failure>(to_json(StopFailed{.failure = a_failure()})) == a_failure());
}

TEST_CASE("the status and a task are the same on the other side", "[control]") {
  round_trip(a_status(), true);
  round_trip(Status{}, true);
  for (const auto& outcome :
       {a_load(), an_unload(true), an_unload(false), a_move(true), a_move(false), TaskOutcome{}}) {
    Task task = a_task();
    task.outcome = outcome;
    CHECK(from_json<Task>(json_from_text(json_to_text(to_json(task)))) == task);
  }
  CHECK(from_json<Progress>(progress_line(to_json(a_progress()))) == a_progress());
  CHECK(from_json<Identity>(to_json(a_status())) == an_identity());
}

LimitsSet some_limits() {
  return {.limits = {.read = 1, .write = 2, .ops = 3, .delayed = 4}};
}

Remains the_remains() {
  return {.name = "job",
          .directory = "/d",
          .state = "dead",
          .error = "its daemon is gone",
          .damaged = "no manifest",
          .left_store = LeftStore{.left = "unsaved",
                                  .store = "/s",
                                  .job_file = "/j",
                                  .start_options = {"--name", "job"},
                                  .restarted = true},
          .lost = true};
}

TEST_CASE("the limits of a mount are the same on the other side", "[control]") {
  round_trip(some_limits(), true);
  round_trip(LimitsSet{}, true);
  CHECK(to_json(some_limits())["limits"] ==
        Json{{"read", 1}, {"write", 2}, {"ops", 3}, {"delayed", 4}});
}

TEST_CASE("the remains of an instance are one object", "[control]") {
  const Json line = to_json(the_remains());
  CHECK(from_json<Remains>(json_from_text(json_to_text(line))) == the_remains());
  CHECK((line["left"] == "unsaved" && line["store"] == "/s" && line["lost"] == true));
  const Json least = to_json(Remains{.name = "job", .directory = "/d", .state = "kept"});
  CHECK(least == Json{{"name", "job"}, {"directory", "/d"}, {"state", "kept"}});
  CHECK(from_json<Remains>(least).left_store == std::nullopt);
  // a command reads the name and the state of every instance so
  const auto alive = from_json<Remains>(to_json(a_status()));
  CHECK((alive.name == "job" && alive.state == "staging-in" && !alive.left_store));
  const Json unreachable = to_json(Unreachable{
      .name = "job", .directory = "/d", .mount = "/m", .job_file = "/j", .error = "why"});
  CHECK(unreachable == Json{{"name", "job"},
                            {"directory", "/d"},
                            {"state", "unreachable"},
                            {"mount", "/m"},
                            {"job_file", "/j"},
                            {"error", "why"}});
}

TEST_CASE("an outcome of a task is a result line", "[control]") {
  Task task;
  task.outcome = a_load();
  CHECK(to_json(task)["outcome"] ==
        result_line({{"files", 1}, {"already", 2}, {"bytes", UINT64_MAX}, {"seconds", 0.5}}));
  task.outcome = failed_task({EBUSY, "in use", true}, 3);
  CHECK(to_json(task)["outcome"] == to_json(a_failure()));
}

TEST_CASE("a receipt is in the line alone", "[control]") {
  Task task;
  task.outcome = an_unload(true);
  task.outcome->unloaded->receipt = {{"job", "a"}};
  const Json line = to_json(task);
  CHECK(line["outcome"]["receipt"]["job"] == "a");
  CHECK(from_json<Task>(line).outcome == an_unload(true));
  Json stopped = to_json(Stopped{});
  add_receipt(stopped, {{"job", "a"}});
  CHECK(stopped == result_line({{"receipt", {{"job", "a"}}}}));
}

TEST_CASE("the fields of a status are in one object, and those of absent parts are absent",
          "[control]") {
  const Json status = to_json(a_status());
  CHECK((status["state"] == "staging-in" && status["name"] == "job" && status["used"] == 4));
  CHECK((status["io"] == "daemon" && status["backends"][1]["io"] == "daemon"));
  CHECK((status["turn"]["ahead"] == 3 && status["staged_in"]["skipped_first"][0]["path"] == "a"));
  CHECK(status["intercept"]["totals"]["clients"] == 1);
  const Json least = to_json(Status{});
  for (const char* name : {"note", "turn", "eta_seconds", "error", "given_up", "staged_in", "trace",
                           "access_log", "status_file", "lost_before", "capacity", "io", "counters",
                           "backends", "open_files", "drain", "tiers", "changed_files"}) {
    CAPTURE(name);
    CHECK(status.contains(name));
    CHECK_FALSE(least.contains(name));
  }
  CHECK((least["tasks"].empty() && least["ok"] == true && least["takeovers"] == 0));
}

template <typename Reply>
std::string refusal_of(const Json& line) {
  try {
    (void)from_json<Reply>(line);
  } catch (const std::invalid_argument& problem) {
    return problem.what();
  }
  return "";
}

// Gives each field of an object in turn a value of a type that no field has.
template <typename Reply>
void refuses_each_field_of(const Reply& reply) {
  const Json line = to_json(reply);
  for (const auto& field : line.items()) {
    // constant, or free-form documents
    if (field.key() == "event" || field.key() == "ok" || field.key() == "counters" ||
        field.key() == "unmatched") {
      continue;
    }
    CAPTURE(field.key());
    Json wrong = line;
    wrong[field.key()] = nullptr;
    CHECK(refusal_of<Reply>(wrong).starts_with(field.key() + " is "));
  }
}

TEST_CASE("a field of a wrong type is refused with its name", "[control]") {
  refuses_each_field_of(a_stop());
  refuses_each_field_of(StopFailed{.failure = a_failure(), .summary = "a", .ended = true});
  refuses_each_field_of(a_task());
  refuses_each_field_of(a_progress());
  refuses_each_field_of(a_status());
  refuses_each_field_of(some_limits());
  refuses_each_field_of(the_remains());
  CHECK(refusal_of<Task>({{"task", -1}}) == "task is not a whole number");
  CHECK(refusal_of<Stopped>({{"exit", 1e10}}) == "exit is not a whole number");
  CHECK(refusal_of<Stopped>({{"exit", std::int64_t{1} << 40}}) == "exit is not a whole number");
  CHECK(refusal_of<Status>({{"tasks", {1}}}) == "tasks is not an object");
  CHECK(refusal_of<Status>({{"tasks", {{{"what", 1}}}}}) == "what is not a text");
  CHECK(refusal_of<Status>({{"start_options", {1}}}) == "start_options is not a list of texts");
  CHECK(refusal_of<Task>({{"outcome", {{"ok", 1}}}}) == "ok is neither true nor false");
}

/// Adds a field to each object of a document.
void add_later_field(Json& document) {
  for (auto& part : document) {
    if (part.is_structured()) {
      add_later_field(part);
    }
  }
  if (document.is_object()) {
    document["later"] = {{"a", 1}};
  }
}

TEST_CASE("a later daemon may send more, and an earlier one less", "[control]") {
  const auto with_more = [](auto reply) {
    Json line = to_json(reply);
    add_later_field(line);
    return line;
  };
  Stopped stop = a_stop();
  stop.unmatched = Json();
  CHECK(from_json<Stopped>(with_more(stop)) == stop);
  CHECK(from_json<Task>(with_more(a_task())) == a_task());
  CHECK(from_json<StopFailed>(with_more(StopFailed{.failure = a_failure()})) ==
        StopFailed{.failure = a_failure()});
  Status status = a_status();
  status.mount->counters = Json();
  CHECK(from_json<Status>(with_more(status)) == status);
  CHECK(from_json<LimitsSet>(with_more(some_limits())) == some_limits());
  CHECK(from_json<Remains>(with_more(the_remains())) == the_remains());
  CHECK(from_json<Stopped>(Json::object()) == Stopped{});
  CHECK(from_json<Task>(Json::object()) == Task{});
  CHECK(from_json<Status>(Json::object()) == Status{});
  CHECK_FALSE(TaskOutcome{}.ok);
}

}  // namespace
}  // namespace efs::control::replies
