#pragma once
// Which run of the machine this is.

#include <string>

namespace efs {

/// The running kernel's boot id: another one later means that the machine was restarted, or lost power.
std::string boot_id();

}  // namespace efs
