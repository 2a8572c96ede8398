#pragma once
// Which run of the machine this is, and of which kernel.

#include <string>

namespace efs {

/// The running kernel's boot id: another one later means that the machine was restarted, or lost
/// power. Read once; throws where it cannot be, for none would look like another one.
const std::string& boot_id();

/// As `uname -r`.
std::string kernel_release();

/// Why no worker that dies is replaced on this kernel; "" where one is (6.9 or later).
std::string no_takeover_reason(const std::string& release);

}  // namespace efs
