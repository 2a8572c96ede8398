#pragma once
// The clock of the time stamps in records.

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// The kernel's clock for files, which stamps the containers too. Programs compare stamps
/// (make(1)), so stamps of the daemon and stamps of the kernel must be in the order of the events.
/// The kernel stamps by a coarse clock. Since Linux 6.13 it stamps finely where the coarse stamp
/// was seen already, and no later stamp of any file is earlier (multigrain timestamps).
/// clock_gettime(2) does not show that lower bound, so the kernel stamps a memory file of ours,
/// which is read. Thread-safe.
class FileClock {
 public:
  FileClock();
  /// Not before any stamp that the kernel gave until now, and not after any stamp that it gives
  /// from now on.
  FileTime now() const;

 private:
  UniqueFd file_;  // none where the system has no descriptor left: then the coarse clock alone
};

}  // namespace efs
