// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether this memory is used by the process that it belongs to. A child of vfork(2), or of
// clone(2) with CLONE_VM alone, uses it too, with descriptors of its own: what it opens and closes
// says nothing of ours. Thread-safe.

namespace efs::intercept::own_process {

/// At the start, and in the child of a fork.
void begin();
/// A child that uses this memory may live from now on.
void share_memory();
/// False in such a child.
bool is_here();

}  // namespace efs::intercept::own_process
