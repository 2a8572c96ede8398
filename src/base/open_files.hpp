// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many files a process may have open (RLIMIT_NOFILE).

#include <cstdint>

#include "base/result.hpp"

namespace efs {

/// The minimum for an instance. With fewer descriptors an instance could neither import nor export:
/// up to 64 threads stage with some four files each, each backend caches and prepares open
/// containers, and connections need descriptors too.
inline constexpr std::uint64_t fewest_open_files = 512;

/// The soft limit, which the kernel enforces.
std::uint64_t most_open_files();

/// The limit for all processes of this machine together; 0: unknown.
std::uint64_t most_open_files_of_machine();

/// How many files all processes of this machine have open (proc_sys_fs(5), file-nr); 0: unknown.
std::uint64_t open_files_of_machine();

/// Raises the soft limit to the hard limit. Returns EMFILE, with advice, if that is less than
/// fewest_open_files.
Status raise_open_files();

}  // namespace efs
