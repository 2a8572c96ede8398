#pragma once
// Passthrough of files that are opened one after the other: one question to the supervisor instead of one each.

#include <cstdint>

#include "fs/filesystem.hpp"
#include "fuse/backing.hpp"

namespace efs::fuse {

/// Registers what is left of the inode's row (BackingTable::rest_of_row()) and may be served by the kernel. Any thread, under no lock; takes
/// about a third of a millisecond. Nothing stays registered that is removed meanwhile. Throws std::bad_alloc, with nothing lost.
void register_row(fs::Filesystem& filesystem, BackingTable& backing, std::uint64_t ino);

}  // namespace efs::fuse
