// SPDX-License-Identifier: BSD-3-Clause
#include "base/file_clock.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace efs {

FileClock::FileClock() : file_(::memfd_create("efs-clock", MFD_CLOEXEC)) {}

// Request only the access time. A request for mtime or ctime would make the kernel use a fine stamp
// next.
FileTime FileClock::now() const {
  struct statx stamped{};
  if (file_ && ::futimens(file_.get(), nullptr) == 0 &&
      ::statx(file_.get(), "", AT_EMPTY_PATH, STATX_ATIME, &stamped) == 0) {
    return timespec{.tv_sec = stamped.stx_atime.tv_sec, .tv_nsec = stamped.stx_atime.tv_nsec};
  }
  timespec coarse{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &coarse);
  return coarse;
}

}  // namespace efs
