// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/fault_handler.hpp"

#include <sys/ucontext.h>

#include <atomic>
#include <cerrno>

#include "intercept/copy.hpp"
#include "intercept/next.hpp"
#include "intercept/own_process.hpp"
#include "intercept/raw.hpp"

namespace efs::intercept::fault_handler {
namespace {

// A process has one action for each signal.
struct Action {
  struct sigaction of_program;
  std::atomic<bool> taken{false};
};

constinit Action of_segv{}, of_bus{};
// Only one thread at a time changes an action.
constinit std::atomic_flag busy;

// No handler of the same thread can find it busy, since none runs meanwhile.
class Turn {
 public:
  Turn() {
    const std::uint64_t all = ~std::uint64_t{0};
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, sizeof before_);
    while (busy.test_and_set(std::memory_order_acquire)) {
      raw(SYS_sched_yield);
    }
  }

  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  ~Turn() {
    busy.clear(std::memory_order_release);
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof before_);
  }

 private:
  std::uint64_t before_ = 0;
};

Action* action_of(int signal) {
  return signal == SIGSEGV ? &of_segv : signal == SIGBUS ? &of_bus : nullptr;
}

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

bool is_ignored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

// The process dies of the signal as it would have without us: at the same instruction, if the
// signal comes from one; of a signal that was sent, at once.
void die_of(int signal, const siginfo_t* info) {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  EFS_NEXT(sigaction)(signal, &standard, nullptr);
  if (info->si_code <= 0) {
    raise(signal);
  }
}

void handle(int signal, siginfo_t* info, void* context) {
  auto& instruction = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  if (info->si_code > 0) {
    if (const auto next = after_fault(static_cast<std::uintptr_t>(instruction)); next != 0) {
      instruction = static_cast<greg_t>(next);
      return;
    }
  }
  Action& mine = *action_of(signal);
  const struct sigaction action = mine.of_program;
  // the kernel never ignores such a signal if an instruction caused it
  if (is_default(action) || (is_ignored(action) && info->si_code > 0)) {
    return die_of(signal, info);
  }
  if (is_ignored(action)) {
    return;
  }
  if ((action.sa_flags & SA_RESETHAND) != 0) {
    mine.of_program = {};
  }
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
}

// The action for the kernel: the program's mask and flags, with what the handler needs.
struct sigaction for_kernel(const struct sigaction& of_program) {
  struct sigaction action = of_program;
  action.sa_sigaction = handle;
  action.sa_flags = static_cast<int>(of_program.sa_flags & ~SA_RESETHAND) | SA_SIGINFO | SA_ONSTACK;
  sigdelset(&action.sa_mask, SIGSEGV);
  sigdelset(&action.sa_mask, SIGBUS);
  return action;
}

bool take(int signal) {
  Action& action = *action_of(signal);
  if (EFS_NEXT(sigaction)(signal, nullptr, &action.of_program) != 0) {
    return false;
  }
  const struct sigaction ours = for_kernel(action.of_program);
  action.taken.store(true, std::memory_order_release);
  if (EFS_NEXT(sigaction)(signal, &ours, nullptr) != 0) {
    action.taken.store(false, std::memory_order_release);
    return false;
  }
  return true;
}

}  // namespace

bool takes(int signal) {
  const Action* action = action_of(signal);
  return action != nullptr && action->taken.load(std::memory_order_acquire);
}

bool install() {
  if (takes(SIGSEGV) && takes(SIGBUS)) {
    return true;
  }
  const Turn turn;
  const int error = errno;
  const bool done = (takes(SIGSEGV) || take(SIGSEGV)) && (takes(SIGBUS) || take(SIGBUS));
  errno = error;
  return done;
}

int set_action(int signal, const struct sigaction* action, struct sigaction* old) {
  if (!own_process::is_here()) {
    // the child of vfork(2) has actions of its own, and this memory not
    const struct sigaction of_parent = action_of(signal)->of_program;
    const int done = action == nullptr ? 0 : EFS_NEXT(sigaction)(signal, action, nullptr);
    if (done == 0 && old != nullptr) {
      *old = of_parent;
    }
    return done;
  }
  const Turn turn;
  Action& mine = *action_of(signal);
  const struct sigaction before = mine.of_program;
  int result = 0;
  if (action != nullptr) {
    const struct sigaction ours = for_kernel(*action);
    result = EFS_NEXT(sigaction)(signal, &ours, nullptr);
    if (result == 0) {
      mine.of_program = *action;
    }
  }
  if (result == 0 && old != nullptr) {
    *old = before;
  }
  return result;
}

void after_fork() {
  busy.clear();
}

const sigset_t* unblocked(const sigset_t* set, sigset_t& reduced) {
  if (set == nullptr || (sigismember(set, SIGSEGV) != 1 && sigismember(set, SIGBUS) != 1)) {
    return set;
  }
  reduced = *set;
  sigdelset(&reduced, SIGSEGV);
  sigdelset(&reduced, SIGBUS);
  return &reduced;
}

}  // namespace efs::intercept::fault_handler
