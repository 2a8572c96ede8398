// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The calls that were served for this process: one line at its end, if EFS_INTERCEPT asks for it.

#include <cstddef>

#include "base/intercept_door.hpp"

namespace efs::intercept::statistics {

/// Adds what a report says. Thread-safe.
void add(const DoorCounts& counts);

/// EFS_INTERCEPT=verify: a served read differed from the kernel's.
void differed(int fd, long offset, std::size_t bytes);

/// Writes the line, once, if a file was mapped. Safe in a signal handler.
void tell();

/// A child counts for itself.
void after_fork();

}  // namespace efs::intercept::statistics
