// SPDX-License-Identifier: BSD-3-Clause
#include "takeover/tracer.hpp"

#include <dirent.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace takeover {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// a worker without a stop for this long, and without a busy thread, waits for requests
constexpr auto quiet_time = 4ms;

user_regs_struct registers_of(pid_t thread) {
  user_regs_struct registers{};
  ::ptrace(PTRACE_GETREGS, thread, nullptr, &registers);
  return registers;
}

// Recognises the read(2) of a request: it is at least as long as a request's header, and its buffer
// is that of messages.
bool received(pid_t thread) {
  const auto registers = registers_of(thread);
  return registers.orig_rax == 0 && static_cast<long>(registers.rax) >= 40 && registers.rdx > 65536;
}

// Returns whether a thread of the process is busy. A thread that a request woke may wait long for a
// processor.
bool is_busy(pid_t pid) {
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    std::ifstream in(task.path() / "stat");
    std::string text;
    std::getline(in, text);
    const auto name_end = text.rfind(") ");
    if (name_end != text.npos && text[name_end + 2] != 'S') {
      return true;
    }
  }
  return false;
}

}  // namespace

void give_up(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", why.c_str(), std::strerror(errno));
  std::_Exit(2);
}

std::vector<std::uint64_t> function_offsets(const std::string& program,
                                            std::span<const char* const> wanted) {
  FILE* names = ::popen(("nm --defined-only " + program + " 2>/dev/null").c_str(), "r");
  std::vector<std::uint64_t> found;
  std::set<std::string_view> missing(wanted.begin(), wanted.end());
  char line[4096];
  while (names != nullptr && std::fgets(line, sizeof line, names) != nullptr) {
    const std::string_view text(line);
    if (text.size() < 20 || (text[17] != 'T' && text[17] != 't' && text[17] != 'W') ||
        text.find(".cold") != text.npos) {
      continue;
    }
    for (const char* name : wanted) {
      if (text.find(name) != text.npos) {
        found.push_back(std::strtoull(line, nullptr, 16)), missing.erase(name);
      }
    }
  }
  if (names != nullptr) {
    ::pclose(names);
  }
  for (const auto name : missing) {
    std::fprintf(stderr,
                 "%s: no function %s, at which a stage begins (renamed, inlined, or stripped?)\n",
                 program.c_str(), name.data());
  }
  if (!missing.empty()) {
    std::exit(2);
  }
  return found;
}

pid_t child_of(pid_t supervisor) {
  std::ifstream children("/proc/" + std::to_string(supervisor) + "/task/" +
                         std::to_string(supervisor) + "/children");
  pid_t pid = 0;
  children >> pid;
  return pid;
}

Birth::Birth(pid_t supervisor) : supervisor_(supervisor) {
  if (::ptrace(PTRACE_SEIZE, supervisor, nullptr, reinterpret_cast<void*>(PTRACE_O_TRACEFORK)) !=
      0) {
    give_up("ptrace of the supervisor");
  }
}

bool Birth::takes(pid_t pid, int status) {
  if (pid == supervisor_ && !WIFSTOPPED(status)) {
    return supervisor_gone_ = true;
  }
  if (pid == supervisor_ && status >> 8 == (SIGTRAP | PTRACE_EVENT_FORK << 8)) {
    unsigned long child = 0;
    ::ptrace(PTRACE_GETEVENTMSG, pid, nullptr, &child);
    child_ = static_cast<pid_t>(child);
    ::ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
    return true;
  }
  if (pid == supervisor_) {
    return ::ptrace(PTRACE_CONT, pid, nullptr,
                    reinterpret_cast<void*>(
                        static_cast<long>(status >> 16 != 0 ? 0 : WSTOPSIG(status)))),
           true;
  }
  if (!WIFSTOPPED(status) || status >> 16 != PTRACE_EVENT_STOP) {
    return false;
  }
  // the child, which the supervisor has reported or will report; or a thread of a process that is
  // being killed
  stopped_.insert(pid);
  return true;
}

pid_t Birth::child(std::set<pid_t>& bystanders) {
  int status = 0;
  while (!supervisor_gone_ && (child_ == 0 || !stopped_.contains(child_))) {
    const pid_t pid = ::waitpid(-1, &status, __WALL);
    if (pid < 0) {
      give_up("no successor");
    }
    if (!takes(pid, status)) {
      bystanders.erase(pid);
    }
  }
  return supervisor_gone_ ? 0 : child_;
}

Victim::Victim(pid_t pid, const std::vector<std::uint64_t>& stages_of) : pid_(pid) {
  attach();
  begin(stages_of);
}

Victim::Victim(Newborn born, const std::vector<std::uint64_t>& stages_of)
    : pid_(born.pid), threads_{born.pid} {
  ::ptrace(PTRACE_SETOPTIONS, pid_, nullptr,
           reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE));
  begin(stages_of);
}

long Victim::run(long most, bool steps, const std::function<bool()>& ended) {
  long stops = 0;
  for (auto last = Clock::now(); !ended() || Clock::now() - last < quiet_time ||
                                 (is_busy(pid_) && Clock::now() - last < patience);) {
    int status = 0;
    const pid_t thread = ::waitpid(-1, &status, __WALL | WNOHANG);
    if (thread == 0 || (thread < 0 && errno == ECHILD)) {
      ::usleep(100);
      continue;
    }
    if (bystanders.erase(thread) != 0) {
      last = Clock::now();
      continue;
    }
    if (!WIFSTOPPED(status)) {
      if (thread == pid_) {
        give_up("the worker ended by itself, status " + std::to_string(status));
      }
      continue;
    }
    last = Clock::now();
    const int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {  // a system call
      if (!steps && ++stops == most) {
        return stops;
      }
      if (steps && received(thread)) {
        stepped_.insert(thread);
      }
      go_on(thread, 0);
    } else if (status >> 16 != 0) {
      go_on(thread, 0);  // a new thread, or our own stop
    } else if (signal == SIGTRAP) {
      if (counts(thread) && ++stops == most) {
        return stops;
      }
      if (!stepped_.contains(thread) && at_stage(thread)) {
        step_over(thread);
      }
      go_on(thread, 0);
    } else {
      go_on(thread, signal);
    }
  }
  return stops;
}

void Victim::kill(Birth* next) {
  ::kill(pid_, SIGKILL);
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, __WALL)) > 0;) {
    if (ended == pid_ && (WIFSIGNALED(status) || WIFEXITED(status))) {
      return;
    }
    if (bystanders.erase(ended) == 0 && next != nullptr) {
      next->takes(ended, status);
    }
  }
}

void Victim::begin(const std::vector<std::uint64_t>& stages_of) {
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  std::uint64_t base = 0;
  maps >> std::hex >> base;
  for (const auto offset : stages_of) {
    set(base + offset);
  }
  for (const auto thread : threads_) {
    go_on(thread, 0);
  }
}

void Victim::attach() {
  // Repeat until no thread is new: threads may start threads meanwhile.
  for (bool fresh = true; fresh;) {
    fresh = false;
    DIR* tasks = ::opendir(("/proc/" + std::to_string(pid_) + "/task").c_str());
    if (tasks == nullptr) {
      give_up("the worker is gone");
    }
    while (const dirent* entry = ::readdir(tasks)) {
      const auto thread = static_cast<pid_t>(std::atoi(entry->d_name));
      if (thread == 0 || threads_.contains(thread)) {
        continue;
      }
      if (::ptrace(PTRACE_SEIZE, thread, nullptr,
                   reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE)) != 0) {
        if (errno == ESRCH) {
          continue;
        }
        give_up("ptrace");
      }
      int status = 0;
      ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
      ::waitpid(thread, &status, __WALL);
      threads_.insert(thread);
      fresh = true;
    }
    ::closedir(tasks);
  }
}

void Victim::set(std::uint64_t address) {
  const long word = ::ptrace(PTRACE_PEEKTEXT, pid_, address, nullptr);
  original_[address] = word;
  ::ptrace(PTRACE_POKETEXT, pid_, address, (word & ~0xffL) | 0xcc);
}

bool Victim::at_stage(pid_t thread) {
  return original_.contains(registers_of(thread).rip - 1);
}

// Returns whether a trap is a stop: a single-stepped instruction, or the begin of a function.
bool Victim::counts(pid_t thread) {
  return stepped_.contains(thread) || at_stage(thread);
}

// Other threads may pass the breakpoint meanwhile: on a quiet mount only one thread serves
// requests.
void Victim::step_over(pid_t thread) {
  auto registers = registers_of(thread);
  const std::uint64_t address = --registers.rip;
  ::ptrace(PTRACE_SETREGS, thread, nullptr, &registers);
  ::ptrace(PTRACE_POKETEXT, thread, address, original_[address]);
  int status = 0;
  ::ptrace(PTRACE_SINGLESTEP, thread, nullptr, nullptr);
  ::waitpid(thread, &status, __WALL);
  ::ptrace(PTRACE_POKETEXT, thread, address, (original_[address] & ~0xffL) | 0xcc);
}

void Victim::go_on(pid_t thread, int signal) {
  ::ptrace(stepped_.contains(thread) ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, thread, nullptr,
           reinterpret_cast<void*>(static_cast<long>(signal)));
}

}  // namespace takeover
