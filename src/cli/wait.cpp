// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <charconv>
#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {

namespace replies = control::replies;

namespace {

struct Finished {
  int code = exit_good;
  Json document;  // for --json; the caller prints it
};

std::string text_of_outcome(const replies::TaskOutcome& outcome) {
  if (outcome.unloaded) {
    return printable(outcome.unloaded->summary, true);
  }
  if (!outcome.ok) {
    return printable(outcome.failure.error, outcome.failure.lines) + "\n";
  }
  if (outcome.moved) {
    return std::to_string(outcome.moved->moved) + " files (" +
           format_bytes(outcome.moved->moved_bytes) + ")" +
           (outcome.moved->unchanged > 0
                ? ", " + std::to_string(outcome.moved->unchanged) + " were there already"
                : "") +
           "\n";
  }
  const auto loaded = outcome.loaded.value_or(replies::Loaded{});
  return std::to_string(loaded.files) + " files (" + format_bytes(loaded.bytes) + ") in " +
         format_seconds(loaded.seconds) +
         (loaded.already > 0 ? ", " + std::to_string(loaded.already) + " were there already" : "") +
         "\n";
}

// Prints the outcome of the task. With --json the caller prints it.
Finished finish(World& world, const control::Instance& instance, std::uint64_t task) {
  const auto failed = [&](const Error& error) {
    return Finished{world.json ? int{exit_failure} : report(world, error), error_document(error)};
  };
  auto answer = ask_until_answered(
      world, instance, to_json(control::requests::WaitTask{.task = task, .timeout_ms = {}}));
  if (!answer) {
    return failed(answer.error());
  }
  if (!replies::is_success(*answer)) {
    return failed(error_in(*answer));
  }
  answer->erase("event");
  const auto ended = replies::from_json<replies::Task>(*answer);
  const auto outcome = ended.outcome.value_or(replies::TaskOutcome{});
  const bool had_all = ended.kind == "fetch" && outcome.loaded && outcome.loaded->files == 0;
  const int code = outcome.ok ? int{exit_good} : outcome.failure.exit;
  if (world.json) {
    return {code, std::move(*answer)};
  }
  if (had_all) {
    return {code, {}};
  }
  const std::string text = "task " + std::to_string(task) + ": " +
                           printable(ended.kind + " " + ended.task_state) + ": " +
                           text_of_outcome(outcome);
  (outcome.ok ? world.out : world.err) << (outcome.ok ? "" : "efs: ") << text;
  return {code, {}};
}

}  // namespace

int finish_task(World& world, const control::Instance& instance, std::uint64_t task) {
  const Finished finished = finish(world, instance, task);
  if (world.json) {
    print_document(world, finished.document);
  }
  return finished.code;
}

Result<std::vector<std::uint64_t>> task_numbers(const std::vector<std::string>& texts) {
  std::vector<std::uint64_t> numbers;
  for (const auto& text : texts) {
    std::uint64_t number = 0;
    const auto end = text.data() + text.size();
    if (const auto read = std::from_chars(text.data(), end, number);
        read.ec != std::errc{} || read.ptr != end) {
      return fail(EINVAL, text + ": no number of a task");
    }
    numbers.push_back(number);
  }
  return numbers;
}

namespace {

Result<std::vector<std::uint64_t>> unfinished_tasks(const control::Instance& instance) {
  const auto status = ask(instance, to_json(control::requests::Status{}));
  if (!status) {
    return std::unexpected(status.error());
  }
  std::vector<std::uint64_t> numbers;
  for (const auto& task : replies::from_json<replies::Status>(*status).tasks) {
    if (task.task_state == "pending" || task.task_state == "running") {
      numbers.push_back(task.task);
    }
  }
  return numbers;
}

// A failure is worse than files that failed.
int worse_of(int worst, int code) {
  return code == exit_failure || worst == exit_good ? code : worst;
}

}  // namespace

// Without numbers waits for every unfinished task. Returns the worst exit code. In JSON a single
// task is an object; otherwise the output is a list.
int wait(World& world, const FileArguments& a) {
  if (a.inputs) {
    return wait_for_inputs(world, a);
  }
  auto numbers = task_numbers(a.paths);
  if (!numbers) {
    return report(world, numbers.error(), exit_usage);
  }
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  if (numbers->empty()) {
    numbers = unfinished_tasks(*instance);
    if (!numbers) {
      return report(world, numbers.error());
    }
  }
  int worst = exit_good;
  Json all = Json::array();
  for (const auto number : *numbers) {
    Finished finished = finish(world, *instance, number);
    worst = worse_of(worst, finished.code);
    all.push_back(std::move(finished.document));
  }
  if (world.json) {
    print_document(world, a.paths.size() == 1 ? all.front() : all);
  }
  return worst;
}

}  // namespace efs::cli
