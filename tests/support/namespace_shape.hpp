// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "fs/namespace.hpp"

namespace efs::test {

/// Checks the invariants of a namespace.
inline void check_shape(const fs::Namespace& names) {
  std::map<std::uint64_t, std::uint64_t> links, subdirectories;
  names.for_each_name([&](const fs::Inode& parent, const std::string&, fs::Inode& inode) {
    ++links[inode.ino];
    if (inode.is_directory()) {
      ++subdirectories[parent.ino];
    }
  });
  names.for_each([&](fs::Inode& inode) {
    if (inode.is_directory()) {
      if (inode.nlink == 0) {
        return;
      }
      REQUIRE(inode.nlink == 2 + subdirectories[inode.ino]);
      REQUIRE(links[inode.ino] == (inode.ino == fs::root_ino ? 0 : 1));
      REQUIRE(names.is_within(inode.ino, fs::root_ino));
    } else {
      REQUIRE(inode.nlink == links[inode.ino]);
    }
  });
}

}  // namespace efs::test
