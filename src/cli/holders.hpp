#pragma once
// Who keeps a mount busy.

#include <string>
#include <vector>

namespace efs::cli {

/// "PID COMMAND (what)", one per process, other than this one, that this user may look into and
/// that has a file, directory, program, mapping or bound socket below `mount_point`; and what no
/// process shows: mounts, loop devices and swap areas there. At most `most`.
std::vector<std::string> holders_of(const std::string& mount_point, std::size_t most = 20);

}  // namespace efs::cli
