#pragma once
// The mounts of this process's mount namespace, as the kernel lists them. No path is walked.

#include <string>
#include <vector>

namespace efs {

/// A line of mountinfo (proc(5)), with its escapes resolved.
struct MountLine {
  std::string id, parent, device, root, point, type, source;
  std::string options;  // of the file system
};

/// All of them, in the kernel's order. `root` precedes the path that is read ("": the machine's
/// own).
std::vector<MountLine> mount_table(const std::string& root = "");

/// Is `option` one of these options (separated by commas)?
bool has_option(const std::string& options, const std::string& option);

/// mountinfo writes blank, tab, newline and backslash as \ooo.
std::string unescaped(const std::string& text);

}  // namespace efs
