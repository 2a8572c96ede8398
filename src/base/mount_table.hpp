// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The mounts of this process's mount namespace, as the kernel lists them. No path is walked.

#include <string>
#include <vector>

namespace efs {

/// A line of mountinfo (proc(5)), with its escapes resolved.
struct MountLine {
  std::string id, parent, device, root, point, type, source;
  std::string options;  // options of the file system
};

/// Returns all mounts in the kernel's order. `root` is prepended to the path that is read ("": the
/// machine's own).
std::vector<MountLine> mount_table(const std::string& root = "");

/// Returns whether `options` (separated by commas) contains `option`.
bool has_option(const std::string& options, const std::string& option);

/// Resolves the escapes of mountinfo: it writes blank, tab, newline and backslash as \ooo.
std::string unescaped(const std::string& text);

}  // namespace efs
