// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Locks on files and directories (flock(2)). A lock means that an instance or a store is in use.

#include "base/unique_fd.hpp"

namespace efs {

/// Acquires the lock of an instance or a store. A process that only inspects the lock holds it
/// briefly, so this retries for 0.2 s and then returns false.
bool lock_soon(const UniqueFd& lock);

}  // namespace efs
