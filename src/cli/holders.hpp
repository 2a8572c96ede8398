// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds the users of a busy mount.

#include <string>
#include <vector>

namespace efs::cli {

/// Returns at most `most` lines. A line "PID COMMAND (what)" stands for each other process that has
/// a file, directory, program, mapping or bound socket below `mount_point`, if the caller may
/// inspect the process. Further lines stand for mounts, loop devices and swap areas below
/// `mount_point`.
std::vector<std::string> holders_of(const std::string& mount_point, std::size_t most = 20);

}  // namespace efs::cli
