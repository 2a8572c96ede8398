#pragma once
// How many files a process may have open (RLIMIT_NOFILE).

#include <cstdint>

#include "base/result.hpp"

namespace efs {

/// With fewer an instance could come to where it can neither read inputs nor bring results out: up
/// to 64 threads stage, with some four files each; containers are kept open and made ahead, by each
/// backend; and there are connections.
inline constexpr std::uint64_t fewest_open_files = 512;

/// The soft limit, which counts.
std::uint64_t most_open_files();

/// All that the processes of this machine may have open together; 0: unknown.
std::uint64_t most_open_files_of_machine();

/// Makes the soft limit the hard one. EMFILE, with the way out, where that is less than
/// fewest_open_files.
Status raise_open_files();

}  // namespace efs
