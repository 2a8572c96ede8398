// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The memory that this process may still use: the machine's memory and the limits of control
// groups.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace efs {

/// The directory of a control group.
struct ControlGroup {
  std::string directory;
  int version = 2;  // version of its hierarchy: 1 or 2
};

/// Returns the groups that limit this process in every hierarchy that may have `controller`
/// (version 1, version 2, or both on a mixed system). For each hierarchy, the process's own group
/// comes first, then every visible ancestor. If the own group is not visible (another cgroup
/// namespace), the list starts with the nearest visible ancestor. `root` is prepended to every path
/// that is read ("": the machine's own).
std::vector<ControlGroup> control_groups(const std::string& controller,
                                         const std::string& root = "");

/// An upper bound, and the file that sets it, for messages.
struct MemoryBound {
  std::uint64_t bytes = 0;
  std::string source;
};

/// Returns the smallest of these: the machine's available memory, or `unpromised` if given; and for
/// each group, its limit less its use. Page cache that the kernel reclaims first does not count as
/// used. Swap never counts. An unreadable limit does not count.
MemoryBound memory_bound(std::optional<std::uint64_t> unpromised = std::nullopt,
                         const std::string& root = "");

/// The source in the mount table by which efs recognises its own tmpfs (backends of type DRAM).
inline constexpr const char* memory_store_source = "efs-store";

/// Returns the machine's available memory less the possible growth of these tmpfs: other instances
/// were promised that memory and do not use it yet. A tmpfs with a promise larger than the memory
/// counts for half of the rest. If the caller may not inspect a tmpfs, all shared memory of the
/// machine counts as its use. Walks no path that could hang.
std::uint64_t unpromised_memory();

}  // namespace efs
