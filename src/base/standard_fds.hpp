// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Standard input, output and error of a process.

namespace efs {

/// Opens /dev/null for each closed standard descriptor. Otherwise a later file would get its
/// number, and a library that writes to standard error would write to that file. For main(), before
/// it opens anything.
void fill_standard_fds();

}  // namespace efs
