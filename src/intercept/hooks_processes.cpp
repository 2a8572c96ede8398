// SPDX-License-Identifier: BSD-3-Clause
// The calls that make processes, replace programs, end them, and set signals.
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "intercept/descriptors.hpp"
#include "intercept/fault_handler.hpp"
#include "intercept/next.hpp"
#include "intercept/own_process.hpp"
#include "intercept/settings.hpp"
#include "intercept/statistics.hpp"

namespace {

namespace in = efs::intercept;

constexpr long only_close_on_exec = 4;  // CLOSE_RANGE_CLOEXEC

void report_all() {
  in::Descriptors::stamp_all();
  in::Mount::report_all();
}

void after_fork() {
  in::own_process::begin();
  in::fault_handler::after_fork();
  in::Descriptors::after_fork();
  in::Mount::after_fork();
  in::statistics::after_fork();
}

// Signals are served from here on in the thread that starts: what it inherits may block them.
__attribute__((constructor)) void begin() {
  in::own_process::begin();
  in::read_settings();
  if (!in::settings().serves) {
    return;
  }
  pthread_atfork(in::Descriptors::share_all, nullptr, after_fork);
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, SIGSEGV);
  sigaddset(&ours, SIGBUS);
  EFS_NEXT(pthread_sigmask)(SIG_UNBLOCK, &ours, nullptr);
}

__attribute__((destructor)) void end() {
  report_all();
  in::statistics::tell();
}

// The arguments of execl() and its kin, up to and with the null; then what stands behind it.
std::size_t count(va_list rest) {
  std::size_t arguments = 1;
  while (va_arg(rest, char*) != nullptr) {
    ++arguments;
  }
  return arguments;
}

void before_exec() {
  in::Descriptors::share_all();
  if (in::own_process::is_here()) {
    report_all();
  }
}

}  // namespace

// The child has its parent's memory and may not return from a function of ours: so this jumps to
// the next vfork() with the stack as it was (rule 9).
extern "C" __attribute__((visibility("hidden"), used)) void* efs_intercept_before_vfork() {
  in::Descriptors::share_all();
  in::own_process::share_memory();
  return reinterpret_cast<void*>(EFS_NEXT(vfork));
}

asm(R"(
  .text
  .globl vfork
  .type vfork, @function
vfork:
  .cfi_startproc
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call efs_intercept_before_vfork
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
  .size vfork, . - vfork
)");

// Runs no handler of pthread_atfork(3).
EFS_HOOK pid_t _Fork() noexcept {
  in::Descriptors::share_all();
  const pid_t pid = EFS_NEXT(_Fork)();
  if (pid == 0) {
    after_fork();
  }
  return pid;
}

EFS_HOOK int clone(int (*run)(void*), void* stack, int flags, void* argument, ...) {
  va_list rest;
  va_start(rest, argument);
  void* parent = va_arg(rest, void*);
  void* local = va_arg(rest, void*);
  void* child = va_arg(rest, void*);
  va_end(rest);
  if ((flags & CLONE_FILES) == 0) {
    in::Descriptors::share_all();
    if ((flags & CLONE_VM) != 0) {
      in::own_process::share_memory();
    }
  }
  return EFS_NEXT(clone)(run, stack, flags, argument, parent, local, child);
}

EFS_HOOK int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                         const posix_spawnattr_t* attributes, char* const* arguments,
                         char* const* environment) {
  in::Descriptors::share_all();
  return EFS_NEXT(posix_spawn)(pid, path, actions, attributes, arguments, environment);
}

EFS_HOOK int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                          const posix_spawnattr_t* attributes, char* const* arguments,
                          char* const* environment) {
  in::Descriptors::share_all();
  return EFS_NEXT(posix_spawnp)(pid, file, actions, attributes, arguments, environment);
}

EFS_HOOK int system(const char* command) {
  in::Descriptors::share_all();
  return EFS_NEXT(system)(command);
}

EFS_HOOK FILE* popen(const char* command, const char* mode) {
  in::Descriptors::share_all();
  return EFS_NEXT(popen)(command, mode);
}

EFS_HOOK int execve(const char* path, char* const* arguments, char* const* environment) {
  before_exec();
  return EFS_NEXT(execve)(path, arguments, environment);
}

EFS_HOOK int execv(const char* path, char* const* arguments) {
  before_exec();
  return EFS_NEXT(execv)(path, arguments);
}

EFS_HOOK int execvp(const char* file, char* const* arguments) {
  before_exec();
  return EFS_NEXT(execvp)(file, arguments);
}

EFS_HOOK int execvpe(const char* file, char* const* arguments, char* const* environment) {
  before_exec();
  return EFS_NEXT(execvpe)(file, arguments, environment);
}

EFS_HOOK int fexecve(int fd, char* const* arguments, char* const* environment) {
  before_exec();
  return EFS_NEXT(fexecve)(fd, arguments, environment);
}

EFS_HOOK int execveat(int at, const char* path, char* const* arguments, char* const* environment,
                      int flags) {
  before_exec();
  return EFS_NEXT(execveat)(at, path, arguments, environment, flags);
}

// execl(path, first, ..., null[, environment]): as the same call with a vector.
#define EFS_EXECL(name, call, environment)                                            \
  EFS_HOOK int name(const char* path, const char* first, ...) {                       \
    va_list rest;                                                                     \
    va_start(rest, first);                                                            \
    const std::size_t arguments = count(rest) + 1;                                    \
    va_end(rest);                                                                     \
    auto** vector = static_cast<char**>(__builtin_alloca(sizeof(char*) * arguments)); \
    va_start(rest, first);                                                            \
    vector[0] = const_cast<char*>(first);                                             \
    for (std::size_t i = 1; i < arguments; ++i) {                                     \
      vector[i] = va_arg(rest, char*);                                                \
    }                                                                                 \
    const int result = call(path, vector environment);                                \
    va_end(rest);                                                                     \
    return result;                                                                    \
  }
EFS_EXECL(execl, execv, )
EFS_EXECL(execlp, execvp, )
#define EFS_ENVIRONMENT , va_arg(rest, char* const*)
EFS_EXECL(execle, execve, EFS_ENVIRONMENT)

// A child of vfork(2) is not the process whose memory it uses.
EFS_HOOK void _exit(int status) {
  if (in::own_process::is_here()) {
    report_all();
    in::statistics::tell();
  }
  EFS_NEXT(_exit)(status);
  __builtin_unreachable();
}

EFS_HOOK void _Exit(int status) {
  _exit(status);
}

EFS_HOOK int mlockall(int flags) noexcept {
  if ((flags & MCL_FUTURE) != 0) {
    in::File::map_no_more();
  }
  return EFS_NEXT(mlockall)(flags);
}

EFS_HOOK int sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  return in::fault_handler::takes(signal) ? in::fault_handler::set_action(signal, action, old)
                                          : EFS_NEXT(sigaction)(signal, action, old);
}

EFS_HOOK int __sigaction(int signal, const struct sigaction* action,
                         struct sigaction* old) noexcept {
  return sigaction(signal, action, old);
}

namespace {

sighandler_t set_handler(int signal, sighandler_t handler, int flags) {
  struct sigaction action{};
  struct sigaction old{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if ((flags & SA_NODEFER) == 0) {
    sigaddset(&action.sa_mask, signal);
  }
  return in::fault_handler::set_action(signal, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

constexpr int system_v = static_cast<int>(SA_RESETHAND) | SA_NODEFER;

}  // namespace

#define EFS_SIGNAL(name, flags)                                                   \
  EFS_HOOK sighandler_t name(int signal, sighandler_t handler) noexcept {         \
    return in::fault_handler::takes(signal) ? set_handler(signal, handler, flags) \
                                            : EFS_NEXT(name)(signal, handler);    \
  }
EFS_SIGNAL(signal, SA_RESTART)
EFS_SIGNAL(bsd_signal, SA_RESTART)
EFS_SIGNAL(ssignal, SA_RESTART)
EFS_SIGNAL(sysv_signal, system_v)
EFS_SIGNAL(__sysv_signal, system_v)

EFS_HOOK int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  sigset_t reduced;
  return EFS_NEXT(pthread_sigmask)(
      how, how == SIG_UNBLOCK ? set : in::fault_handler::unblocked(set, reduced), old);
}

EFS_HOOK int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  sigset_t reduced;
  return EFS_NEXT(sigprocmask)(
      how, how == SIG_UNBLOCK ? set : in::fault_handler::unblocked(set, reduced), old);
}

namespace {

// The effect of a system call that a program makes by its number on what is known of descriptors.
enum class Effect { none, closes, closes_range, replaces, changes, uses, gives_away, execs };

struct Numbered {
  long number;
  Effect effect;
};

constexpr Numbered effects[] = {
    {SYS_close, Effect::closes},
    {SYS_close_range, Effect::closes_range},
    {SYS_dup2, Effect::replaces},
    {SYS_dup3, Effect::replaces},
    {SYS_fcntl, Effect::changes},
    {SYS_read, Effect::uses},
    {SYS_write, Effect::uses},
    {SYS_readv, Effect::uses},
    {SYS_writev, Effect::uses},
    {SYS_preadv2, Effect::uses},
    {SYS_pwritev2, Effect::uses},
    {SYS_lseek, Effect::uses},
    {SYS_dup, Effect::uses},
    {SYS_sendfile, Effect::gives_away},
    {SYS_splice, Effect::gives_away},
    {SYS_copy_file_range, Effect::gives_away},
    {SYS_sendmsg, Effect::gives_away},
    {SYS_sendmmsg, Effect::gives_away},
    {SYS_fork, Effect::gives_away},
    {SYS_vfork, Effect::gives_away},
    {SYS_clone, Effect::gives_away},
    {SYS_clone3, Effect::gives_away},
    {SYS_io_uring_setup, Effect::gives_away},
    {SYS_io_uring_enter, Effect::gives_away},
    {SYS_execve, Effect::execs},
    {SYS_execveat, Effect::execs},
    {SYS_exit_group, Effect::execs},
};

Effect effect_of(long number) {
  for (const Numbered& each : effects) {
    if (each.number == number) {
      return each.effect;
    }
  }
  return Effect::none;
}

void before(long number, const long (&arguments)[6]) {
  const int fd = static_cast<int>(arguments[0]);
  switch (effect_of(number)) {
    case Effect::closes: return in::Descriptors::replace(fd);
    case Effect::closes_range:
      if ((arguments[2] & only_close_on_exec) == 0) {
        in::Descriptors::forget_range(static_cast<unsigned>(arguments[0]),
                                      static_cast<unsigned>(arguments[1]));
      }
      return;
    case Effect::replaces:
      in::Descriptors::share(fd);
      return in::Descriptors::replace(static_cast<int>(arguments[1]));
    case Effect::changes: in::Descriptors::look_again(); return in::Descriptors::share(fd);
    case Effect::uses: return in::Descriptors::share(fd);
    case Effect::gives_away: return in::Descriptors::share_all();
    case Effect::execs: return before_exec();
    case Effect::none: return;
  }
}

}  // namespace

EFS_HOOK long syscall(long number, ...) noexcept {
  long arguments[6];
  va_list rest;
  va_start(rest, number);
  for (long& argument : arguments) {
    argument = va_arg(rest, long);
  }
  va_end(rest);
  before(number, arguments);
  return EFS_NEXT(syscall)(number, arguments[0], arguments[1], arguments[2], arguments[3],
                           arguments[4], arguments[5]);
}
