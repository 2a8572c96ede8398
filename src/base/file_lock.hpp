#pragma once
// Locks of files and directories that say whether an instance or a store is in use (flock(2)).

#include "base/unique_fd.hpp"

namespace efs {

/// Takes the lock of an instance or a store. Whoever only looks at it holds it for a moment: false
/// after 0.2 s.
bool lock_soon(const UniqueFd& lock);

}  // namespace efs
