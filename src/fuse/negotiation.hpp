// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The features of a connection, which the kernel offers and the daemon chooses (INIT).

struct fuse_conn_info;

namespace efs::fuse {

/// libfuse's callback `init`. `connection` is a Connection; disables passthrough and uncached files
/// in it where the kernel offers neither.
void negotiate(void* connection, fuse_conn_info* info);

}  // namespace efs::fuse
