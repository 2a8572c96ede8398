// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The clock of the time stamps in records.

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// The kernel's clock for files, which also stamps the containers. Programs compare stamps
/// (make(1)), so the stamps of the daemon and of the kernel must follow the order of the events.
/// The kernel stamps by a coarse clock. Since Linux 6.13 the kernel uses a fine stamp if a program
/// has already seen the coarse one, and no later stamp of any file is earlier (multigrain
/// timestamps). clock_gettime(2) does not show that lower bound. So this class has the kernel stamp
/// a memory file and reads that stamp. Thread-safe.
class FileClock {
 public:
  FileClock();
  /// Returns a time that is not before any stamp of the kernel until now, and not after any later
  /// stamp.
  FileTime now() const;

 private:
  UniqueFd file_;  // empty if the process had no free descriptor; then now() uses the coarse clock
};

}  // namespace efs
