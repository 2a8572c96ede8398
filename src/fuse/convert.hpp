// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Between libfuse's structures and ours.

#include "fs/filesystem.hpp"
#include "fuse/library.hpp"

namespace efs::fuse {

// The daemon is the only writer of the namespace, so the kernel may keep what it was told until it
// changes it itself.
inline constexpr double keep_for_ever = 365.0 * 86400;
// ... but a shared mapping on a passthrough file moves mtime without a word to anybody.
inline constexpr double keep_briefly = 1.0;
// ... and while it is open read-write that is what is expected of it, so the kernel asks each time.
inline constexpr double keep_not = 0;

fuse_entry_param to_entry(const fs::Entry& entry);
/// With the time of birth, which struct stat has no place for.
struct statx to_statx(const fs::Entry& entry);
/// "There is no such name", for the kernel to remember.
fuse_entry_param negative_entry();
double attribute_timeout(const fs::Entry& entry);
fs::AttributeChange to_change(const struct stat& attributes, int to_set);

}  // namespace efs::fuse
