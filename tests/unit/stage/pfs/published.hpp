// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "stage/pfs/posix_handle.hpp"
#include "stage/pfs/publisher.hpp"

namespace efs::stage {

/// Gives the file `from` of the open directory `at` the name `to`.
inline Status published(Publisher& publisher, PfsRef at, const std::string& from,
                        const std::string& to, NameRule rule = {}) {
  struct stat partial{};
  if (::fstatat(fd_of(at), from.c_str(), &partial, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno();
  }
  return publisher.publish(
      posix_pfs(), {.names = {.at = at, .from = from, .to = to}, .partial = partial, .rule = rule},
      {});
}

}  // namespace efs::stage
