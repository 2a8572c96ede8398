// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Opens this user's files on the PFS, whatever their mode.

#include <cstdint>
#include <string>

#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Opens for reading. If the mode of the user's file forbids reading, changes the mode for the
/// duration of the open. EACCES if another user owns the file. ESTALE if the name no longer leads
/// to the file `inode`.
Result<PfsHandle> open_owned(PfsRef directory, const std::string& name, std::uint64_t inode,
                             PfsIo& pfs);

}  // namespace efs::stage
