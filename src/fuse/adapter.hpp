#pragma once
// libfuse's callbacks: each turns a request into one call of Filesystem and its result into one reply.

struct fuse_lowlevel_ops;

namespace efs::fuse {

/// The table of callbacks; their user data is a Door.
fuse_lowlevel_ops adapter_operations();

}  // namespace efs::fuse
