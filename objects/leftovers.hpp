// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Drafts on the file system: their names, their locks, and the removal of those without an owner.
// The flock of an open draft marks it as alive. It ends with the process, also by SIGKILL.

#include <string>

#include "objects/files.hpp"
#include "objects/result.hpp"

namespace efs::objects {

/// A draft that is a file with a new name. Its flock marks it as alive.
struct DraftFile {
  Fd fd;
  std::string name;
};

Result<DraftFile> create_draft(int directory);

/// Creates and locks a directory of mode 0700: no other user can lock it. EBUSY: another owner has
/// it. One that a dead process left is replaced.
Result<Fd> create_draft_directory(int at, const std::string& name);

/// Removes a draft, file or directory, that no process owns. Returns true if it is gone. A draft of
/// another node or of an earlier boot stays for seven days.
bool remove_abandoned(int at, const std::string& name, bool directory);

/// Returns true if the name still leads to the open file.
bool is_named(int fd, int at, const std::string& name);

/// Removes all abandoned drafts below a directory; skips what it cannot read.
void sweep(int directory, int depth = 0);

/// Removes a directory with its content; failures leave the rest.
void remove_tree(int at, const std::string& name, int depth = 0);

}  // namespace efs::objects
