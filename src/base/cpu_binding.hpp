// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Binds the calling thread to one CPU for a while. The CPUs that the process may use are those of
// its main thread, which nobody binds here. So the limits of an administrator (taskset(1), a
// cpuset) hold, and a change of them holds from the next call on.

#include <sys/types.h>

#include <optional>

namespace efs {

/// Returns the CPU that `thread` is bound to: the only one that it may use, and one that this
/// process may use, too. nullopt if `thread` may use several, has a real-time policy (it would not
/// let others run there), or does not exist.
std::optional<unsigned> only_cpu_of(pid_t thread);

/// Binds the calling thread. Returns false, and changes nothing, if the process may not use `cpu`
/// or the system refuses.
bool bind_to_cpu(unsigned cpu);

/// Lets the calling thread use each CPU that the process may use.
void use_cpus_of_process();

/// The same, for a thread that bind_to_cpu() has bound. Does nothing on others.
void unbind_from_cpu();

/// Returns the CPU that bind_to_cpu() has bound the calling thread to. A thread that is started
/// meanwhile inherits the binding from the kernel; start_thread() ends that.
std::optional<unsigned> bound_cpu();

}  // namespace efs
