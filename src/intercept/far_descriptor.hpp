// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Descriptors of the library's own, away from the low numbers, of which programs expect the next
// free one.

namespace efs::intercept {

/// Moves the descriptor to a high number; nearly all of a small limit stays the program's. Returns
/// the new number, or `fd` if none is free. Closed by exec(3).
int move_far(int fd);

}  // namespace efs::intercept
