// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Identifies the current boot of the machine and the running kernel.

#include <string>

namespace efs {

/// The running kernel's boot id. A different id later means that the machine was restarted or lost
/// power. The id is read once. Throws if it cannot be read: an empty id would look like a different
/// one.
const std::string& boot_id();

/// The kernel release, as `uname -r` prints it.
std::string kernel_release();

/// The reason why efs cannot replace a dead worker on this kernel; "" if it can (6.9 or later).
std::string no_takeover_reason(const std::string& release);

}  // namespace efs
