// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>

#include "base/text.hpp"
#include "base/user.hpp"
#include "cli/cli.hpp"

namespace efs::cli {
namespace {

// Runs in the child: executes the program, or exits with the code that env(1) would use.
[[noreturn]] void execute(const std::vector<std::string>& command, const config::JobConfig& config,
                          const JobArguments& arguments, const std::string& directory) {
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
  std::vector<char*> argv;
  for (const auto& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int problem = errno;
  const std::string text = "efs: " + printable(command[0]) + ": " + std::strerror(problem) + "\n";
  (void)!::write(2, text.data(), text.size());
  ::_exit(problem == ENOENT ? exit_not_found : exit_cannot_run);
}

// The signals that wait_for() forwards, and the one that tells of the program's end.
sigset_t awaited_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

// Forwards signals (a time limit, ctrl-c) to the program. efs itself must survive to export the
// results.
int wait_for(pid_t child) {
  const sigset_t signals = awaited_signals();
  int status = 0;
  pid_t gone = 0;
  while ((gone = ::waitpid(child, &status, WNOHANG)) == 0) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals, &info);
    // A signal from the terminal has already reached the whole process group.
    if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) {
      ::kill(child, signal);
    }
  }
  if (gone < 0) {
    return exit_cannot_run;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The program or another process may stop the instance, so efs asks for the outcome before it
// starts the program. If the request fails, or a successor replaces the daemon, only the state of
// the instance tells the outcome.
std::optional<control::Client> ask_for_end(const control::Instance& instance) {
  constexpr int seconds = 10;  // of silence after the end
  auto client = control::Client::connect(instance.socket(), instance.owner, seconds);
  if (!client || !client->send({{"verb", "wait-end"}})) {
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
  const auto started = launch(world, arguments, *config);
  if (!started) {
    return started.error();
  }
  const sigset_t signals = awaited_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  control::Instance instance{
      .name = config->name, .directory = started->value("directory", ""), .alive = true};
  struct stat st{};
  instance.owner = ::stat(instance.directory.c_str(), &st) == 0 ? st.st_uid : ::geteuid();
  auto end = ask_for_end(instance);
  // Some batch systems and daemons ignore SIGCHLD. The kernel would then discard the child's exit
  // status.
  const auto of_caller = ::signal(SIGCHLD, SIG_DFL);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGCHLD, of_caller);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    execute(command, *config, arguments, instance.directory);
  }
  const Error no_child{
      errno, child < 0 ? "cannot start the program: " + std::string(std::strerror(errno)) : ""};
  if (child < 0 && !world.json) {
    report(world, no_child, exit_cannot_run);
  }
  const int program = child < 0 ? int{exit_cannot_run} : wait_for(child);
  // standard output belongs to the program
  World told{world.err, world.err, world.terminal, world.json};
  Stopped stopped = stop_instance(told, instance,
                                  {.supervisor = started->value("supervisor_pid", 0), .end = &end});
  const int code = program != 0        ? program
                   : stopped.code == 0 ? int{exit_good}
                                       : int{exit_not_saved};
  if (world.json) {
    print_run(world, code, program, std::move(stopped), no_child);
  }
  return code;
}

}  // namespace efs::cli
