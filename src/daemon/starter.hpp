// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Resets the state that a process inherits from its starter. An instance outlives its starter. It
// must neither hold the starter's resources nor end at limits that apply to the starter's programs.

#include <cstdint>
#include <optional>
#include <string>

namespace efs::daemon {

/// Changes the working directory to "/". Resets every signal to its default action and unblocks all
/// signals. Raises the soft limits that would end the daemon (file size, CPU time, memory) to the
/// hard limits. Clears the owner's bits in the umask. Lowers a positive oom_score_adj to 0 if
/// allowed. Call this before the first fork, with one thread. Returns the old working directory. If
/// the old directory is gone, returns "" and does not change the directory.
std::string leave_starter();

/// Returns the CPU time in seconds after which the kernel ends this process; nullopt: no limit.
std::optional<std::uint64_t> cpu_limit();

}  // namespace efs::daemon
