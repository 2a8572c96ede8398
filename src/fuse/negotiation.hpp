// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Negotiation of a connection's features (INIT): the kernel offers them, and the daemon chooses.

struct fuse_conn_info;

namespace efs::fuse {

/// libfuse's callback `init`. `connection` is a Connection. Disables passthrough and uncached files
/// in it if the kernel does not offer them.
void negotiate(void* connection, fuse_conn_info* info);

}  // namespace efs::fuse
