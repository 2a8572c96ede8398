// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <charconv>
#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {
namespace {

struct Finished {
  int code = exit_good;
  Json document;  // for --json; the caller prints it
};

std::string text_of_outcome(const Json& outcome, bool good) {
  if (outcome.contains("summary")) {
    return printable(outcome.value("summary", ""), true);
  }
  if (!good) {
    return printable(outcome.value("error", ""), outcome.value("lines", false)) + "\n";
  }
  const int already = outcome.value("already", 0);
  return std::to_string(outcome.value("files", 0)) + " files (" +
         format_bytes(outcome.value("bytes", std::uint64_t{0})) + ") in " +
         format_seconds(outcome.value("seconds", 0.0)) +
         (already > 0 ? ", " + std::to_string(already) + " were there already" : "") + "\n";
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
  if (!answer->value("ok", false)) {
    return failed(error_in(*answer, "failed"));
  }
  answer->erase("event");
  const Json outcome = answer->value("outcome", Json::object());
  const bool good = outcome.value("ok", false);
  const int code = good ? exit_good : outcome.value("exit", static_cast<int>(exit_failure));
  if (world.json) {
    return {code, std::move(*answer)};
  }
  const std::string text =
      "task " + std::to_string(task) + ": " +
      printable(answer->value("kind", "") + " " + answer->value("task_state", "")) + ": " +
      text_of_outcome(outcome, good);
  (good ? world.out : world.err) << (good ? "" : "efs: ") << text;
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
  for (const auto& task : status->value("tasks", Json::array())) {
    if (const std::string how = task.value("task_state", "");
        how == "pending" || how == "running") {
      numbers.push_back(task.value("task", std::uint64_t{0}));
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
