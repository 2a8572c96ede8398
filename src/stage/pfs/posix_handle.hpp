// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The descriptors behind the handles of posix_pfs(), for pfs_io.cpp and for tests. Other code asks
// PfsIo; lint/layers_test.sh checks that.

#include "stage/pfs/pfs_handle.hpp"

namespace efs::stage {

/// AT_FDCWD for `no_directory`, and -1 for none.
inline int fd_of(PfsRef ref) {
  return PfsNumbers::number_of(ref);
}

}  // namespace efs::stage
