// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <optional>

#include "base/user.hpp"
#include "cli/child_program.hpp"
#include "cli/cli.hpp"

namespace efs::cli {
namespace {

// Runs in the child, before the program.
void prepare(const config::JobConfig& config, const JobArguments& arguments,
             const std::string& directory) {
  if (!arguments.user.empty() && ::geteuid() == 0) {
    const auto user = find_user(arguments.user);
    if (!user || !become(*user, true)) {
      ::_exit(exit_cannot_run);
    }
  }
  ::setenv("EFS_MOUNT", config.mount_dir.c_str(), 1);
  const std::string job_file =
      arguments.text ? directory + "/job.yaml" : std::filesystem::absolute(config.source).string();
  ::setenv("EFS_CONFIG", job_file.c_str(), 1);
}

// The program or another process may stop the instance, so efs asks for the outcome before it
// starts the program. If the request fails, or a successor replaces the daemon, only the state of
// the instance tells the outcome.
std::optional<control::Client> ask_for_end(const control::Instance& instance) {
  constexpr int seconds = 10;  // of silence after the end
  auto client = control::Client::connect(instance.socket(), instance.owner, seconds);
  if (!client || !client->send(to_json(control::requests::WaitEnd{}))) {
    return {};
  }
  return std::move(*client);
}

// Prints the document of --json. `no_child`: why the program did not start; its text is "" if it
// did.
void print_run(World& world, int code, int program, Stopped stopped, const Error& no_child) {
  Json document{{"ok", code == exit_good},
                {"exit", code},
                {"program_exit", program},
                {"stop_exit", stopped.code},
                {"stop", std::move(stopped.document)}};
  if (!no_child.what.empty()) {
    document["error"] = no_child.what;
  }
  print_document(world, document);
}

}  // namespace

int run(World& world, const JobArguments& arguments, const std::vector<std::string>& command) {
  const auto config = load_job(world, arguments);
  if (!config) {
    return config.error();
  }
  // Before the start: an error afterwards would cost a stage-in.
  const auto library = arguments.intercepts ? find_interception() : std::string();
  if (!library) {
    return report(world, library.error());
  }
  const auto started = launch(world, arguments, *config);
  if (!started) {
    return started.error();
  }
  // Signals wait from here on: efs itself must survive to export the results.
  ChildProgram child;
  const auto job = control::replies::from_json<control::replies::Identity>(*started);
  control::Instance instance{.name = config->name, .directory = job.directory, .alive = true};
  struct stat st{};
  instance.owner = ::stat(instance.directory.c_str(), &st) == 0 ? st.st_uid : ::geteuid();
  auto end = ask_for_end(instance);
  const Status begun = child.start(command, [&] {
    prepare(*config, arguments, instance.directory);
    if (arguments.intercepts) {
      prepare_interception(world, arguments.intercept, *library, command.front());
    }
  });
  const Error no_child = begun ? Error{} : begun.error();
  if (!begun && !world.json) {
    report(world, no_child, exit_cannot_run);
  }
  const int program = begun ? child.wait() : int{exit_cannot_run};
  // standard output belongs to the program
  World told{world.err, world.err, world.terminal, world.json};
  Stopped stopped = stop_instance(told, instance, {.supervisor = job.supervisor_pid, .end = &end});
  const int code = program != 0        ? program
                   : stopped.code == 0 ? int{exit_good}
                                       : int{exit_not_saved};
  if (world.json) {
    print_run(world, code, program, std::move(stopped), no_child);
  }
  return code;
}

}  // namespace efs::cli
