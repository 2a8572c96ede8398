#pragma once
// Do the names of a namespace fit its inodes? By the names alone, from the root: what replay
// enforces record by record is checked again as a whole, by other code.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fs/namespace.hpp"

namespace efs::image {

struct Tree {
  // of each inode that has a name: one of its paths, relative to the root
  std::map<std::uint64_t, std::string> paths;
  std::uint64_t files = 0, directories = 0, others = 0;
  // path, or "inode N", and what is wrong with it
  std::vector<std::pair<std::string, std::string>> damage;
};

/// Every name leads to an inode; every inode that has names by its link count can be reached, and
/// has as many as that says; no directory has two.
Tree check_tree(const fs::Namespace& names);

}  // namespace efs::image
