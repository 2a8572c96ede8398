// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// libfuse's callbacks. Each callback makes a Request and calls its handler (fuse/handlers/).

struct fuse_lowlevel_ops;

namespace efs::fuse {

/// Returns the table of callbacks. Their user data is a Connection. Each call needs a Delivery on
/// its thread.
fuse_lowlevel_ops adapter_operations();

}  // namespace efs::fuse
