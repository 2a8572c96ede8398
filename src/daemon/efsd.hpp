// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The process efsd. Parses its arguments, creates the instance's directory and forks supervisor and
// worker.

namespace efs::daemon {

/// Returns the exit code of the process. Without --foreground this is the parent, which returns
/// early.
int efsd(int argc, char** argv);

}  // namespace efs::daemon
