#pragma once

// The process efsd: parses its arguments, makes the instance's directory, forks supervisor and
// worker.

namespace efs::daemon {

/// The exit code of the process (of the parent that returns early, unless --foreground).
int efsd(int argc, char** argv);

}  // namespace efs::daemon
