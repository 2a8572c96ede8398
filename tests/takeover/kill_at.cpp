// SPDX-License-Identifier: BSD-3-Clause
// Kills a process at its nth system call.
//   usage: efs-kill-at PID N
// Traces every thread. A call counts twice, at its entry and at its return, so that each state
// visible to other processes between two calls is one kill point. Exit code 0: killed there; 3: the
// process ended before.
#include <dirent.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  const auto pid = static_cast<pid_t>(std::atoi(argv[1]));
  long left = std::atol(argv[2]);
  std::set<pid_t> traced;
  // Repeat until no thread is new: threads may start threads meanwhile.
  for (bool fresh = true; fresh;) {
    fresh = false;
    DIR* tasks = ::opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
    if (tasks == nullptr) {
      return 3;
    }
    while (const dirent* entry = ::readdir(tasks)) {
      const auto thread = static_cast<pid_t>(std::atoi(entry->d_name));
      if (thread == 0 || traced.contains(thread)) {
        continue;
      }
      if (::ptrace(PTRACE_SEIZE, thread, nullptr,
                   reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE)) != 0) {
        if (errno == ESRCH) {
          continue;
        }
        std::perror("ptrace");
        return 2;
      }
      ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
      traced.insert(thread);
      fresh = true;
    }
    ::closedir(tasks);
  }
  while (true) {
    int status = 0;
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    if (thread < 0) {
      return 3;
    }
    if (!WIFSTOPPED(status)) {
      if (thread == pid) {
        return 3;
      }
      continue;
    }
    const int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80) && --left == 0) {
      ::kill(pid, SIGKILL);
      while (::waitpid(-1, &status, __WALL) > 0) {
      }
      return 0;
    }
    const bool ours = signal == (SIGTRAP | 0x80) || status >> 16 != 0;
    ::ptrace(PTRACE_SYSCALL, thread, nullptr,
             reinterpret_cast<void*>(static_cast<long>(ours ? 0 : signal)));
  }
}
