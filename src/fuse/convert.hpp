// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Conversion between libfuse's structures and ours.

#include "fs/filesystem.hpp"
#include "fuse/library.hpp"

namespace efs::fuse {

struct Connection;

// Cache timeouts, in seconds. The daemon is the only writer of the namespace, so the kernel may
// cache an entry until the kernel itself changes it.
inline constexpr double keep_for_ever = 365.0 * 86400;
// A shared mapping of a passthrough file changes mtime without a notification.
inline constexpr double keep_briefly = 1.0;
// While such a file is open read-write, the kernel asks each time.
inline constexpr double keep_not = 0;

/// The attributes for the kernel. If the kernel collects writes, it has the size and the times of a
/// regular file, and ignores the daemon's. It may then cache the others. A file without blocks that
/// is open for writing gets one, because the kernel may have its data: some programs take 0 to mean
/// "only a hole". It keeps these for a second.
fs::Entry as_cached(const Connection& connection, fs::Entry entry);
fuse_entry_param to_entry(const fs::Entry& entry);
/// Includes the birth time, which struct stat lacks.
struct statx to_statx(const fs::Entry& entry);
/// The reply "there is no such name", which the kernel caches.
fuse_entry_param negative_entry();
double attribute_timeout(const fs::Entry& entry);
fs::AttributeChange to_change(const struct stat& attributes, int to_set);

}  // namespace efs::fuse
