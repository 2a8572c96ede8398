// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reports the death of a worker to the supervisor at once, even while the kernel cannot reap the
// worker. Such a worker has a thread in fuse_reverse_inval_entry, which waits for a directory lock.
// A program holds this lock until the worker answers, and no signal ends the wait. The descriptors
// of the worker stay open meanwhile.

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {

/// Keeps `end` open exactly until this process exits or is killed. A thread with its own descriptor
/// table, which holds only `end`, sleeps until then, so the kernel closes `end` at once. Fails with
/// ENOSYS before Linux 5.9, and with EAGAIN or ENOMEM if no thread can start; `end` then closes
/// with the other descriptors of the process. Call this as the final user of the process, because
/// the thread keeps its credentials.
Status hold_death_pipe(UniqueFd end);

}  // namespace efs::daemon
