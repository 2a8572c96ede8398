// SPDX-License-Identifier: BSD-3-Clause
#include "cli/daemon_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "cli/cli.hpp"
#include "cli/doctor.hpp"

extern char** environ;

namespace efs::cli {
namespace {

struct Ran {
  int problem = 0;      // errno of a failed start
  bool in_time = true;  // false: killed at the deadline
  int status = 0;
  std::string said;  // standard output and standard error
};

using Deadline = std::chrono::steady_clock::time_point;

bool is_readable(int fd, Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd line{.fd = fd, .events = POLLIN, .revents = 0};
  return left.count() > 0 && ::poll(&line, 1, static_cast<int>(left.count())) > 0;
}

// Returns false if the deadline passed before the end of the output.
bool read_until(int fd, Deadline deadline, std::string& text) {
  constexpr std::size_t most = 1u << 16;
  std::array<char, 4096> buffer{};
  while (is_readable(fd, deadline)) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n <= 0) {
      return true;
    }
    text.append(buffer.data(), std::min(static_cast<std::size_t>(n), most - text.size()));
  }
  return false;
}

// Returns false if the deadline passed before the end of the process. On a kernel without pidfds
// (before 5.3) the caller waits for the process without a deadline.
bool ends_until(pid_t pid, Deadline deadline) {
  const UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  return !end || is_readable(end.get(), deadline);
}

// Runs `program option` with empty standard input, and kills it at the deadline.
Ran run_briefly(std::string program, std::string option) {
  Ran ran;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return ran.problem = errno, ran;
  }
  const UniqueFd output(ends[0]);
  UniqueFd input(ends[1]);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_adddup2(&files, input.get(), fd);
  }
  std::array<char*, 3> argv{program.data(), option.data(), nullptr};
  pid_t pid = 0;
  ran.problem = ::posix_spawnp(&pid, argv[0], &files, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  input.reset();
  if (ran.problem != 0) {
    return ran;
  }
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(patience);
  ran.in_time = read_until(output.get(), deadline, ran.said) && ends_until(pid, deadline);
  if (!ran.in_time) {
    ::kill(pid, SIGKILL);
  }
  while (::waitpid(pid, &ran.status, 0) < 0 && errno == EINTR) {
  }
  while (ran.said.ends_with('\n')) {
    ran.said.pop_back();
  }
  return ran;
}

std::string path_beside() {
  std::error_code problem;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", problem);
  return problem ? "" : (self.parent_path() / "efsd").string();
}

}  // namespace

std::string daemon_program() {
  const std::string beside = path_beside();
  return !beside.empty() && ::access(beside.c_str(), F_OK) == 0 ? beside : "efsd";
}

Error cannot_start(const std::string& program, int problem) {
  const std::string text = "cannot start " + program + ": " + std::strerror(problem);
  if (program.find('/') == program.npos) {
    return {EIO, text + ". It is neither beside efs, as " + path_beside() +
                     ", nor in PATH: install it there"};
  }
  if (problem == ENOENT) {
    return {EIO, text +
                     ". The file is there, and the loader that it names is not: install this "
                     "machine's efsd"};
  }
  if (problem == ENOEXEC) {
    return {EIO, text + ". It is of another architecture, or damaged: install this machine's efsd"};
  }
  return {EIO, text};
}

std::string how_ended(int status) {
  if (!WIFSIGNALED(status)) {
    return "ended with " + std::to_string(WEXITSTATUS(status));
  }
  const int signal = WTERMSIG(status);
  const char* advice = signal == SIGKILL ? ", perhaps for want of memory: see dmesg" : "";
  return "was killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")" +
         advice;
}

Findings examine_daemon() {
  const std::string program = daemon_program(), what = "efsd";
  const Ran ran = run_briefly(program, "--version");
  const auto bad = [&](std::string text, std::string advice) {
    return Findings{{Level::problem, what, std::move(text), std::move(advice)}};
  };
  if (ran.problem != 0) {
    return bad(describe(cannot_start(program, ran.problem)),
               "install efs and efsd together, in one directory");
  }
  if (!ran.in_time) {
    return bad(program + " --version does not end within " + std::to_string(patience) + " s" +
                   (ran.said.empty() ? "" : "; it printed: " + as_word(ran.said)),
               "see what it waits for: strace " + program + " --version");
  }
  if (ran.status != 0) {
    return bad(
        program + " cannot run: it " + how_ended(ran.status) +
            (ran.said.empty() ? "" : ": " + ran.said),
        "ldd " + program + " shows the libraries that are missing; install them, on every node");
  }
  if (ran.said != "efsd " EFS_VERSION) {
    return bad(program + " says that it is " + as_word(ran.said) + ", and this is efs " EFS_VERSION,
               "install efs and efsd of one version");
  }
  return {{Level::ok, what, program + " runs", {}}};
}

}  // namespace efs::cli
