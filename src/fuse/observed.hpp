#pragma once
// The adapter's callbacks with an observer around each.

struct fuse_lowlevel_ops;

namespace efs::fuse {

/// adapter_operations(), each of them counted, timed and described to the Door's observer. What the
/// adapter leaves out stays out, save releasedir, which says good: else the kernel's closedir would
/// not be seen.
fuse_lowlevel_ops observed_operations();

}  // namespace efs::fuse
