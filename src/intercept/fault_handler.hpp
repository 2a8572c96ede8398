// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// SIGSEGV and SIGBUS: ours if they come from copy(), the program's in all other cases. The program
// sees its own actions: what it sets is kept here, and what it asks for is answered from here.

#include <csignal>

namespace efs::intercept::fault_handler {

/// Installs the handler for both signals, once. Thread-safe. Safe in a signal handler. False: it
/// could not be installed.
bool install();

/// True if this signal's actions go through set_action().
bool takes(int signal);

/// sigaction(2) of a signal that is taken.
int set_action(int signal, const struct sigaction* action, struct sigaction* old);

/// The child of a fork has one thread.
void after_fork();

/// A blocked SIGSEGV or SIGBUS would end the process in copy(). Returns `set`, or `reduced`, which
/// is `set` without the two signals.
const sigset_t* unblocked(const sigset_t* set, sigset_t& reduced);

}  // namespace efs::intercept::fault_handler
