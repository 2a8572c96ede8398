#pragma once
// Tells the supervisor at once that a worker was killed, also where the kernel cannot let go of all
// of it yet: a thread that tells the kernel of a name waits for the directory's lock
// (fuse_reverse_inval_entry), which a program holds until the worker answers, and no signal ends
// that wait. Such a worker cannot be reaped, and its descriptors stay open.

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {

/// Keeps `end` open until this process is killed or ends, and no longer: in a thread that shares no
/// descriptor with the others (its own copy of the table has nothing else) and does nothing, so
/// that it goes at once. ENOSYS before Linux 5.9, EAGAIN or ENOMEM without a thread: then `end` is
/// closed when the process is gone, as any other descriptor. Call it as the user that the process
/// is to be: the thread stays what it was.
Status hold_death_pipe(UniqueFd end);

}  // namespace efs::daemon
