// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The open file or directory `path`, which is one of the PFS.
inline PfsHandle opened(const std::string& path, int flags = directory_flags) {
  return posix_pfs().open(no_directory, path, flags, 0600).value();
}

}  // namespace efs::stage
