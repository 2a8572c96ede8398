#pragma once
// What a process inherits from its starter. An instance outlives its starter: it must not hold what
// is the starter's, nor end by limits that were meant for the starter's programs.

#include <cstdint>
#include <optional>
#include <string>

namespace efs::daemon {

/// Leaves the working directory for "/". Gives every signal its default action and blocks none.
/// Raises the soft limits that would end the daemon (size of files, CPU time, memory) to the hard
/// ones. Takes the bits of the owner out of the umask. Lowers an oom_score_adj above 0 to 0, where
/// that is allowed. Call before the first fork, with one thread. Returns the working directory; "",
/// and the process stays there, if it is gone.
std::string leave_starter();

/// Seconds of CPU time after which the kernel ends this process; none: no limit.
std::optional<std::uint64_t> cpu_limit();

}  // namespace efs::daemon
