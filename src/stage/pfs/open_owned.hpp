#pragma once
// A file on the PFS that is this user's, whatever its mode.

#include <cstdint>
#include <string>

#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// For reading. What this user brought out with a mode that keeps him from reading it has another
/// one for the time of an open. EACCES where it is not his. ESTALE where it is not the file `inode`
/// any more.
Result<UniqueFd> open_owned(int directory, const std::string& name, std::uint64_t inode,
                            PfsIo& pfs);

}  // namespace efs::stage
