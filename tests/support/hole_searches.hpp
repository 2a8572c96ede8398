// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counts the searches for data or holes (lseek(2), SEEK_DATA and SEEK_HOLE) of this process. The
// test program defines lseek before the C library.

#include <cstdint>

namespace efs::test {

/// Returns how many searches all threads have made.
std::uint64_t hole_searches();

}  // namespace efs::test
