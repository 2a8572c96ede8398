#pragma once
// Who keeps a mount busy.

#include <string>
#include <vector>

namespace efs::cli {

/// "PID COMMAND (what)", one per process that this user may look into and that has a file, directory, program or
/// mapping below `mount_point`; at most `most`.
std::vector<std::string> holders_of(const std::string& mount_point, std::size_t most = 20);

}  // namespace efs::cli
