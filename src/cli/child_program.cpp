// SPDX-License-Identifier: BSD-3-Clause
#include "cli/child_program.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {
namespace {

// Runs in the child: executes the program, or exits with the code that env(1) would use.
[[noreturn]] void execute_or_exit(const std::vector<std::string>& command) {
  const int problem = execute(command);
  const std::string text = "efs: " + printable(command[0]) + ": " + std::strerror(problem) + "\n";
  (void)!::write(2, text.data(), text.size());
  ::_exit(problem == ENOENT ? exit_not_found : exit_cannot_run);
}

}  // namespace

int execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const auto& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  return errno;
}

ChildProgram::ChildProgram() {
  sigemptyset(&forwarded_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&forwarded_, signal);
  }
  ::sigprocmask(SIG_BLOCK, &forwarded_, &before_);
}

Status ChildProgram::start(const std::vector<std::string>& command,
                           const std::function<void()>& prepare) {
  // Some batch systems and daemons ignore SIGCHLD. The kernel would then discard the child's exit
  // status.
  const auto of_caller = ::signal(SIGCHLD, SIG_DFL);
  child_ = ::fork();
  if (child_ == 0) {
    ::signal(SIGCHLD, of_caller);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    prepare();
    execute_or_exit(command);
  }
  if (child_ < 0) {
    return fail(errno, "cannot start the program: " + std::string(std::strerror(errno)));
  }
  return {};
}

int ChildProgram::wait() const {
  int status = 0;
  pid_t gone = 0;
  while ((gone = ::waitpid(child_, &status, WNOHANG)) == 0) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&forwarded_, &info);
    // A signal from the terminal has already reached the whole process group.
    if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) {
      ::kill(child_, signal);
    }
  }
  if (gone < 0) {
    return exit_cannot_run;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace efs::cli
