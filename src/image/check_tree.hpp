// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks the names of a namespace against its inodes, starting at the root. Replay enforces the
// same rules record by record. This check verifies the result as a whole, with independent code.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fs/namespace.hpp"

namespace efs::image {

struct Tree {
  // one path of each inode that has a name, relative to the root
  std::map<std::uint64_t, std::string> paths;
  std::uint64_t files = 0, directories = 0, others = 0;
  // path, or "inode N", and its defect
  std::vector<std::pair<std::string, std::string>> damage;
};

/// Checks these rules. Every name leads to an inode. Every inode with a link count is reachable, by
/// as many names as the count says. No directory has two names.
Tree check_tree(const fs::Namespace& names);

}  // namespace efs::image
