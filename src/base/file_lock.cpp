// SPDX-License-Identifier: BSD-3-Clause
#include "base/file_lock.hpp"

#include <sys/file.h>

#include <ctime>

namespace efs {

bool lock_soon(const UniqueFd& lock) {
  for (int tries = 0; tries < 20; ++tries) {
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      return true;
    }
    const timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace efs
