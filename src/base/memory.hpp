#pragma once
// How much memory there is to be had.

#include <cstdint>

namespace efs {

/// What this process may still use, bytes: the machine's available memory, or less where a cgroup says so.
std::uint64_t available_memory();

}  // namespace efs
