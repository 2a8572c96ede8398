#pragma once
// The memory that this process may still use: what the machine has, and what control groups leave.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace efs {

/// A directory of a control group.
struct ControlGroup {
  std::string directory;
  int version = 2;  // of its hierarchy: 1 or 2
};

/// The groups that bind this process in the hierarchies which may have `controller` (version 1,
/// version 2, or both where they are mixed): of each its own group first, then every ancestor that
/// is visible here. Where its own group is not visible (another cgroup namespace), the nearest one
/// that is. `root` precedes every path that is read ("": the machine's own).
std::vector<ControlGroup> control_groups(const std::string& controller,
                                         const std::string& root = "");

/// An upper bound, and the file that sets it, for messages.
struct MemoryBound {
  std::uint64_t bytes = 0;
  std::string source;
};

/// The least of: the memory that the machine has available, or `unpromised` where it is given; and
/// of each group, its limit less what it uses. Page cache that the kernel reclaims first does not
/// count as used. Swap counts nowhere. A limit that cannot be read bounds nothing.
MemoryBound memory_bound(std::optional<std::uint64_t> unpromised = std::nullopt,
                         const std::string& root = "");

/// The source with which private tmpfs of efs are mounted (backends of type DRAM).
inline constexpr const char* memory_store_source = "efs-store";

/// The memory that the machine has available, less what these tmpfs may still grow by: other
/// instances were promised it and do not use it yet. One that was promised more than there is
/// counts for half of the rest. Where the caller may not look at a tmpfs, all shared memory of the
/// machine counts as its use. No path is walked that could hang.
std::uint64_t unpromised_memory();

}  // namespace efs
