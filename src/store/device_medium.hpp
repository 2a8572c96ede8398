// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The metadata files on a device without a file system. src/store/README.md, "Metadata on a
// device", has the format.

#include <memory>

#include "base/device_memory.hpp"
#include "base/result.hpp"
#include "store/medium.hpp"

namespace efs::store {

/// Files in `range`, of which this medium is the only user; a range of zeros has none yet. Each
/// change of a name, a size or the pages of a file is durable on return, so sync_names() only syncs
/// the device. A removed file keeps its pages until its last user closes it. The errors are those
/// of a directory, and also: ENOSPC: the range or its table is full; ENAMETOOLONG; ENXIO: a window
/// behind the end of the file, or a window that is not in one piece (FreePages::lengthen()).
///
/// Fails as read_table().
Result<std::shared_ptr<Medium>> device_medium(std::shared_ptr<DeviceMemory> range);

}  // namespace efs::store
